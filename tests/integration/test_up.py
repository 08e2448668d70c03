"""`gitops up` as a person runs it: it comes up, mends itself, and leaves nothing behind."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from gitops_reconciler.layout import Layout
from gitops_reconciler.supervise.procfs import descendants
from tests.support.git_repos import MakeUpstream
from tests.support.processes import eventually, lives
from tests.support.redis_server import require_redis_binary
from tests.support.roles import RoleProcess, Roles, running_roles

pytest.importorskip("supervisor")
pytest.importorskip("fastapi")

START_SECONDS = 60.0
END_SECONDS = 60.0


class Up:
    """A running `gitops up`, seen from outside."""

    def __init__(self, roles: Roles, *arguments: str, **environ: str) -> None:
        self.layout = Layout(roles.folder / "state")
        command = [sys.executable, "-m", "gitops_reconciler.cli", "up", "--port", "0", *arguments]
        self.role: RoleProcess = roles.run(command, environ=environ)

    @property
    def facts(self) -> dict[str, Any]:
        """What it says of itself."""
        facts: dict[str, Any] = json.loads(self.layout.up_file.read_text())
        return facts

    def is_healthy(self) -> bool:
        with suppress(OSError, ValueError, KeyError), urlopen(f"{self.facts['url']}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def wait(self) -> "Up":
        """Wait until the receiver answers and the worker serves."""
        is_up = eventually(lambda: self.is_healthy() and "ready" in self.role.text(), within=START_SECONDS)
        assert is_up, self.role.text()
        return self

    def pid_of(self, words: str) -> int:
        """The one child whose command line has these words."""
        commands = {process.pid: _command(process.pid) for process in descendants(self.role.pid)}
        (found,) = (pid for pid, command in commands.items() if words in command and "tether.py" not in command)
        return found

    def everything(self) -> set[int]:
        """All that runs below it."""
        return {process.pid for process in descendants(self.role.pid)}

    def end(self, number: signal.Signals) -> int:
        """Send a signal; answers the exit code."""
        self.role.ask_to_end(number)
        return self.role.process.wait(END_SECONDS)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def all_gone(pids: set[int], *, within: float = 10.0) -> bool:
    return eventually(lambda: not any(lives(pid) for pid in pids), within=within)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    require_redis_binary()
    with running_roles(tmp_path_factory.mktemp("up")) as roles:
        yield roles


@pytest.fixture(scope="module")
def up(place: Roles) -> Up:
    """One that the tests share which do not end it."""
    return Up(place, "--no-flower").wait()


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    with running_roles(tmp_path / "up") as started:
        yield started


@pytest.mark.req("RM.9")
def test_it_says_where_everything_is_and_the_console_answers_there(up: Up) -> None:
    facts = up.facts
    assert facts["pid"] == up.role.pid
    with urlopen(f"{facts['url']}/", timeout=10) as answer:
        assert answer.status == 200
    assert f"console   {facts['url']}/" in up.role.text()


def test_each_line_of_the_log_says_who_wrote_it(up: Up) -> None:
    assert eventually(lambda: "receiver | " in up.role.text())
    names = {line.partition("|")[0] for line in up.role.text().splitlines()}
    assert names <= {"up       ", "server   ", "receiver ", "beat     ", "worker-1 "}


def test_webhook_secrets_are_made_once_and_for_us_alone(up: Up) -> None:
    for provider in ("github", "gitlab"):
        secret = up.layout.webhook_secrets / provider
        assert secret.stat().st_mode & 0o777 == 0o600
        assert len(secret.read_text().strip()) >= 32
        assert secret.read_text().strip() not in up.role.text()
    assert str(up.layout.webhook_secrets) in up.role.text()


def test_a_second_one_on_the_same_folder_is_refused_with_the_pid_of_the_first(up: Up, place: Roles) -> None:
    second = Up(place)
    assert second.role.process.wait(START_SECONDS) != 0
    assert f"pid {up.role.pid}" in second.role.text()
    assert up.is_healthy()


def test_a_port_that_is_taken_is_named_together_with_the_option_that_chooses_another(
    up: Up, place: Roles, tmp_path: Path
) -> None:
    port = up.facts["url"].rpartition(":")[2]
    second = Up(place, "--port", port, "--state-dir", str(tmp_path / "other"))
    assert second.role.process.wait(START_SECONDS) == 2
    assert f"port {port} " in second.role.text()
    assert "--port" in second.role.text()


@pytest.mark.parametrize("words", ["gitops_services", "gitops_workers beat", "gitops_workers worker", "unixsocket:"])
def test_a_child_that_was_killed_is_started_again(up: Up, words: str) -> None:
    killed = up.pid_of(words)
    os.kill(killed, signal.SIGKILL)

    def is_back() -> bool:
        with suppress(ValueError):
            return up.pid_of(words) != killed and up.is_healthy()
        return False

    assert eventually(is_back, within=START_SECONDS), up.role.text()
    assert re.search(r"up +\| \S+ ended by SIGKILL; (starting it again|next try in \d+ s)", up.role.text())


def test_no_port_is_open_but_that_of_the_receiver(up: Up) -> None:
    inodes = set()
    for pid in {up.role.pid, *up.everything()}:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                inodes.add(link.readlink().name.removeprefix("socket:[").removesuffix("]"))
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in inodes:
                listening.add(int(columns[1].rpartition(":")[2], 16))
    assert listening == {int(up.facts["url"].rpartition(":")[2])}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_in_order_and_nothing_is_left(roles: Roles, number: signal.Signals) -> None:
    up = Up(roles).wait()
    below = up.everything()
    assert len(below) >= 6
    assert up.end(number) == 0, up.role.text()
    assert not any(lives(pid) for pid in below)
    assert not up.layout.up_file.exists()
    ended = re.findall(r"up +\| (\S+) ended with 0", up.role.text())
    assert ended == ["receiver", "beat", "worker-1", "flower", "server"]
    assert "nothing is left running" in up.role.text()


def test_killed_itself_it_takes_everything_along_and_the_next_one_starts_clean(roles: Roles) -> None:
    up = Up(roles, "--no-flower").wait()
    below = up.everything()
    up.end(signal.SIGKILL)
    assert all_gone(below)
    again = Up(roles, "--no-flower").wait()
    assert again.facts["pid"] == again.role.pid
    assert again.end(signal.SIGTERM) == 0


ENDLESS = {
    "gitops/gitops.yaml": "app: test\n",
    "gitops/kind.yaml": (
        "type: manifest\nkind: endless\nschema: {type: object}\ntimeout: 600s\n"
        'scripts: {apply: "sleep 543 & setsid sleep 543 & wait"}\n'
    ),
    "gitops/one.yaml": "type: resource\nkind: endless\nname: one\npath: .\nspec: {}\n",
}


def sleepers() -> set[int]:
    found = (int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline"))
    return {pid for pid in found if _command(pid).startswith("sleep 543 ") and lives(pid)}


@pytest.fixture
def endless(roles: Roles, git_upstream: MakeUpstream, git_root: Path) -> Up:
    """One with a run under way that does not end by itself."""
    upstream = git_upstream("infra")
    upstream.publish(ENDLESS, "an apply that never ends")
    environ = {
        "GITOPS_REPO_URL": upstream.url,
        "GITOPS_GIT_ALLOW_LOCAL": str(git_root),
        "GITOPS_WORKER_GRACE": "2s",
        "GITOPS_LEASE_GRACE": "2s",
        "GITOPS_LEASE_RENEWAL": "1s",
        "GITOPS_LEASE_TTL": "8s",
    }
    up = Up(roles, "--no-flower", **environ).wait()
    assert eventually(lambda: len(sleepers()) == 2, within=START_SECONDS), up.role.text()
    return up


def test_a_run_under_way_is_interrupted_after_the_grace_and_leaves_nothing_either(endless: Up) -> None:
    below = endless.everything()
    assert endless.end(signal.SIGINT) == 0
    assert not any(lives(pid) for pid in below)
    assert sleepers() == set()


def test_killed_during_a_run_its_tools_end_with_the_lease_and_its_end_is_told_to_the_next_one(
    endless: Up, roles: Roles
) -> None:
    below = endless.everything()
    endless.end(signal.SIGKILL)
    assert eventually(lambda: sleepers() == set(), within=20)
    # What is left are the keepers of the run, a quarter of an hour at most: they offer its end to the store.
    again = Up(roles, "--no-flower").wait()
    assert all_gone(below, within=60), again.role.text()
    assert again.end(signal.SIGINT) == 0
