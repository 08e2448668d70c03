"""Whose lock is it? Real Terraform, killed in the middle of an apply, against servers whose locks stay behind."""

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops_reconciler.backends.base import Tools
from gitops_reconciler.backends.http_locks import Held, HttpLocks
from gitops_reconciler.backends.state_locks import Lock
from gitops_reconciler.backends.terraform import TerraformBackend
from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import DeadlineExceededError, EngineLockedError, EngineLockLeftError
from gitops_reconciler.models import ApplyResult, TerraformConfig
from gitops_reconciler.processes import Finished, OnLine, SubprocessRunner
from gitops_reconciler.supervise.procfs import Identity, all_processes, send
from gitops_reconciler.testing.backends import MemoryLog, make_tools
from tests.support.backend_kinds import Terraform as Kind
from tests.support.backend_kinds import environment
from tests.support.killing import kill_all_below, name_of
from tests.support.processes import OnceThere, eventually
from tests.support.state_server import HttpState, S3State, StateServer, running_state_server

US = f"{getpass.getuser()}@{socket.gethostname()}"
BY_HAND = "e11d38e3-ab93-7e7e-a48d-b3ab06dc5e1b"
SLOW = """
resource "terraform_data" "slow" {{
  provisioner "local-exec" {{
    command = "echo $$ > {folder}/pid; [ -e {folder}/go ] || exec sleep 600"
  }}
}}
"""
RUN = """
import sys
from pathlib import Path
from gitops_reconciler import build_backend
from gitops_reconciler.models import TerraformConfig
print(build_backend(TerraformConfig(workdir=Path(sys.argv[1]))).apply())
"""


@dataclass
class Scene:
    """A module whose state lies on a server, and runs of it on this host."""

    server: StateServer
    module: Path
    folder: Path
    env: Mapping[str, str]
    notes: Path

    def backend(
        self, *, log: MemoryLog | None = None, deadline: Deadline | None = None, runner: SubprocessRunner | None = None
    ) -> TerraformBackend:
        tools = make_tools(runner or SubprocessRunner(), env=self.env, log=log, deadline=deadline)
        config = TerraformConfig(workdir=self.module, lock_timeout_seconds=0)
        return TerraformBackend(config, _noting(tools, self.notes))

    def start(self) -> subprocess.Popen[str]:
        """A run of its own process, in the middle of its apply."""
        (self.folder / "pid").unlink(missing_ok=True)
        argv = [sys.executable, "-c", RUN, str(self.module)]
        env = {**self.env, "GITOPS_STATE_DIR": str(self.notes.parent)}
        run = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert eventually(lambda: (self.folder / "pid").exists() and self.has_evidence(), within=60)
        return run

    def has_evidence(self) -> bool:
        return any(json.loads(path.read_text())["held_at"] for path in self.notes.glob("*/*.json"))

    def kill_one(self, *, spare: str = "") -> dict[str, str]:
        """Kill a run in the middle of its apply; the lock that it left."""
        run = self.start()
        kill_all_below(Identity.of(run.pid), spare=spare)
        run.communicate(timeout=30)
        assert self.server.lock is not None
        return self.server.lock

    def go(self) -> None:
        """Let applies come to their end from now on."""
        (self.folder / "go").touch()

    @property
    def left_notes(self) -> list[Path]:
        return list(self.notes.glob("*/*"))


def _noting(tools: Tools, notes: Path) -> Tools:
    return replace(tools, engine_locks=notes)


@pytest.fixture(params=[HttpState, S3State], ids=["http", "s3"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    module = tmp_path / "module"
    module.mkdir()
    with running_state_server(request.param()) as server:
        (module / "main.tf").write_text(server.configuration() + SLOW.format(folder=tmp_path))
        env = {**environment(Kind, tmp_path), **server.env}
        made = Scene(server, module, tmp_path, env, tmp_path / "state" / "engine")
        yield made
        made.go()
        for process in all_processes().values():  # what a test spared
            if process.is_alive and _says(process.pid, str(tmp_path)):
                send(process.identity, signal.SIGKILL)


def _says(pid: int, word: str) -> bool:
    try:
        return word.encode() in Path(f"/proc/{pid}/environ").read_bytes() and name_of(pid) == "sleep"
    except OSError:
        return False


def lock_of(who: str, created: datetime) -> dict[str, str]:
    made = created.isoformat().replace("+00:00", "Z")
    return {"ID": BY_HAND, "Who": who, "Operation": "OperationTypeApply", "Created": made, "Path": "", "Info": ""}


def test_the_lock_of_a_killed_run_is_broken_by_the_next_one_which_then_applies(scene: Scene) -> None:
    left = scene.kill_one()
    scene.go()
    log = MemoryLog()
    status = scene.backend(log=log).apply()
    assert status.result is ApplyResult.CHANGED
    assert f"broke the lock {left['ID']} that process" in status.message
    assert f"broke the lock {left['ID']}" in log.text
    assert log.phases == ["apply", "unlock"]
    assert scene.server.lock is None
    assert scene.left_notes == []
    again = scene.backend().apply()
    assert (again.result, again.message) == (ApplyResult.NO_CHANGE, "no changes")


def test_the_lock_of_a_killed_engine_is_broken_too(scene: Scene) -> None:
    run = scene.start()
    for process in all_processes().values():
        if process.parent == run.pid and name_of(process.pid) != "sh":  # that is its watcher
            send(process.identity, signal.SIGKILL)
    said, _ = run.communicate(timeout=60)
    assert "terraform exited -9" in said
    assert scene.server.lock is not None
    scene.go()
    assert "broke the lock" in scene.backend().apply().message


def test_the_lock_of_a_run_at_work_is_left_alone(scene: Scene) -> None:
    run = scene.start()
    held = scene.server.lock
    with pytest.raises(EngineLockedError, match=rf"by {US} since .* process {run.pid} on this host, or something"):
        scene.backend().apply()
    assert scene.server.lock == held
    kill_all_below(Identity.of(run.pid))
    run.communicate(timeout=30)


def test_what_a_killed_run_started_must_be_dead_before_its_lock_is_broken(scene: Scene) -> None:
    left = scene.kill_one(spare="sleep")
    scene.go()
    with pytest.raises(EngineLockedError, match="or something that it started, still runs"):
        scene.backend().apply()
    assert scene.server.lock == left
    os.kill(int((scene.folder / "pid").read_text()), signal.SIGKILL)

    def is_broken() -> bool:
        try:
            return "broke the lock" in scene.backend().apply().message
        except EngineLockedError:
            return False

    assert eventually(is_broken, within=30)


def test_a_persons_lock_stays_and_the_message_says_all_that_is_needed_to_free_it(scene: Scene) -> None:
    scene.kill_one()  # what we know of a dead run of ours must not matter
    scene.server.set_lock(lock_of("ann@laptop", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))
    scene.go()
    with pytest.raises(EngineLockLeftError) as error:
        scene.backend().apply()
    message = str(error.value)
    assert "locked by ann@laptop since 2026-01-02" in message
    assert f"lock id {BY_HAND}" in message
    assert f"not taken by {US}" in message
    assert message.endswith(f"on {socket.gethostname()}: terraform -chdir={scene.module} force-unlock {BY_HAND}")
    assert scene.server.lock is not None
    command = message.rpartition(": ")[2].replace("force-unlock", "force-unlock -force").split()
    subprocess.run(command, env=dict(scene.env), check=True, capture_output=True, timeout=60)
    assert scene.server.lock is None


def test_somebody_at_work_for_a_short_while_alarms_nobody(scene: Scene) -> None:
    scene.server.set_lock(lock_of("ann@laptop", datetime.now(UTC) - timedelta(minutes=5)))
    with pytest.raises(EngineLockedError, match="locked by ann@laptop"):
        scene.backend().apply()
    scene.server.set_lock(lock_of("ann@laptop", datetime.now(UTC) - timedelta(minutes=16)))
    with pytest.raises(EngineLockLeftError, match="locked by ann@laptop"):
        scene.backend().apply()


@pytest.mark.parametrize("when", ["before", "after"])
def test_our_own_users_lock_of_another_time_is_not_taken_for_a_dead_runs(scene: Scene, when: str) -> None:
    began = datetime.now(UTC)
    scene.kill_one()
    made = began - timedelta(seconds=1) if when == "before" else datetime.now(UTC)
    scene.server.set_lock(lock_of(US, made))
    scene.go()
    with pytest.raises(EngineLockedError, match="no run that died on this host is known to have held it"):
        scene.backend().apply()
    assert scene.server.lock is not None
    assert scene.server.lock["ID"] == BY_HAND


def test_while_somebody_runs_the_engine_by_hand_no_lock_is_broken(scene: Scene) -> None:
    left = scene.kill_one()
    scene.go()
    tool = scene.folder / "by-hand" / "terraform"
    tool.parent.mkdir()
    shutil.copy2("/bin/sleep", tool)
    person = subprocess.Popen([tool, "600"])
    try:
        with pytest.raises(EngineLockedError, match=rf"runs the engine by hand on this host \(process {person.pid}\)"):
            scene.backend().apply()
    finally:
        person.kill()
        person.wait()
    assert scene.server.lock == left
    assert "broke the lock" in scene.backend().apply().message


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapping(SubprocessRunner):
    """Somebody frees the lock and takes it himself between our look and our command."""

    server: StateServer

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        deadline: Deadline,
        stdin: bytes = b"",
        on_line: OnLine | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Finished:
        if "force-unlock" in argv:
            self.server.set_lock(lock_of("ann@laptop", datetime.now(UTC)))
        return SubprocessRunner.run(
            self, argv, cwd=cwd, env=env, deadline=deadline, stdin=stdin, on_line=on_line, pass_fds=pass_fds
        )


def test_a_lock_that_changed_hands_since_we_looked_is_not_broken(scene: Scene) -> None:
    left = scene.kill_one()
    scene.go()
    if isinstance(scene.server, HttpState):
        scene.server.swap = lock_of("ann@laptop", datetime.now(UTC))
    log = MemoryLog()
    with pytest.raises(EngineLockedError, match="locked by ann@laptop"):
        scene.backend(runner=Swapping(server=scene.server), log=log).apply()
    assert f"the lock {left['ID']} was not broken" in log.text
    assert scene.server.lock is not None
    assert scene.server.lock["ID"] == BY_HAND


def test_a_run_that_ends_at_its_deadline_gives_the_lock_back(scene: Scene) -> None:
    with pytest.raises(DeadlineExceededError):
        scene.backend(deadline=OnceThere(path=scene.folder / "pid")).apply()
    assert scene.server.lock is None
    scene.go()
    status = scene.backend().apply()
    assert (status.result, "broke" in status.message) == (ApplyResult.CHANGED, False)
    assert scene.left_notes == []


def test_a_kernels_lock_ends_with_its_process_and_nothing_has_to_be_broken(tmp_path: Path) -> None:
    module = tmp_path / "module"
    module.mkdir()
    (module / "main.tf").write_text(SLOW.format(folder=tmp_path))
    env = {**environment(Kind, tmp_path), "GITOPS_STATE_DIR": str(tmp_path / "state")}
    argv = [sys.executable, "-c", RUN, str(module)]
    run = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
    assert eventually((tmp_path / "pid").exists, within=60)
    config = TerraformConfig(workdir=module, lock_timeout_seconds=0)
    tools = _noting(make_tools(SubprocessRunner(), env=env), tmp_path / "state" / "engine")
    with pytest.raises(EngineLockedError, match=r"a process holds it"):
        TerraformBackend(config, tools).apply()
    kill_all_below(Identity.of(run.pid))
    run.wait(timeout=30)
    assert (module / ".terraform.tfstate.lock.info").exists()
    (tmp_path / "go").touch()
    status = TerraformBackend(config, tools).apply()
    assert (status.result, status.message) == (ApplyResult.CHANGED, "1 added, 0 changed, 0 destroyed")


def test_who_looks_at_a_lock_that_became_free_does_not_keep_it() -> None:
    with running_state_server(HttpState()) as server:
        names = ("address", "lock_address", "unlock_address")
        asking = HttpLocks.of(dict.fromkeys(names, f"{server.url}/state"), {}, US)
        assert asking is not None
        assert asking.look(Lock(id="1-2-3"), datetime.now(UTC)).lock is None
        assert server.lock is None
        assert server.requests == ["LOCK /state", "UNLOCK /state"]


def test_of_a_server_that_does_not_answer_only_what_the_engine_said_is_known() -> None:
    with running_state_server(HttpState()) as server:
        url = server.url
    names = ("address", "lock_address", "unlock_address")
    asking = HttpLocks.of(dict.fromkeys(names, f"{url}/state"), {}, US)
    assert asking is not None
    assert asking.look(Lock(id="1-2-3"), datetime.now(UTC)) == Held(Lock(id="1-2-3"))
    assert not asking.release(b"{}")
