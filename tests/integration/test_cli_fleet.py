"""The commands that ask a server, against a real `gitops up`."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from gitops_reconciler.cli import main
from gitops_reconciler.layout import Layout
from tests.support.git_repos import GitUpstream
from tests.support.processes import eventually
from tests.support.redis_server import require_redis_binary
from tests.support.roles import running_roles

pytest.importorskip("supervisor")
pytest.importorskip("fastapi")

KIND = """\
type: manifest
kind: note
schema: {type: object, required: [path, text], properties: {path: {type: string}, text: {type: string}}}
scripts:
  apply: |
    [ "$(cat "$SPEC_PATH" 2>/dev/null)" = "$SPEC_TEXT" ] && { echo "as declared"; exit 0; }
    printf '%s' "$SPEC_TEXT" > "$SPEC_PATH" || exit 1
    echo "wrote $SPEC_TEXT"; exit 3
"""
SLOW = 'type: manifest\nkind: slow\nschema: {type: object}\nscripts: {apply: "sleep 2; echo slept"}\n'
Printed = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Place:
    """A running fleet with one source."""

    state: Path
    upstream: GitUpstream
    world: Path

    @property
    def url(self) -> str:
        return str(json.loads(Layout(self.state).up_file.read_text())["url"])

    def fetch(self, path: str) -> bytes:
        """What the API answers."""
        with urlopen(Request(f"{self.url}/api/v1/{path}"), timeout=10) as answer:
            body: bytes = answer.read()
        return body


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    require_redis_binary()
    root = tmp_path_factory.mktemp("cli")
    upstream = GitUpstream.create(root, "infra")
    (root / "world").mkdir()

    def resource(kind: str, name: str, spec: str) -> str:
        return f"type: resource\nkind: {kind}\nname: {name}\ninterval: off\nlabels: {{who: {name}}}\nspec: {spec}\n"

    tree = {
        "gitops/gitops.yaml": "app: test\n",
        "gitops/note.yaml": KIND,
        "gitops/slow.yaml": SLOW,
        "gitops/web.yaml": resource("note", "web", f"{{path: {root}/world/web, text: one}}"),
        "gitops/bad.yaml": resource("note", "bad", f"{{path: {root}/world/no/bad, text: one}}"),
        "gitops/lazy.yaml": resource("slow", "lazy", "{}"),
    }
    upstream.publish(tree, "one")
    settings = {"GITOPS_REPO_URL": str(upstream.bare), "GITOPS_GIT_ALLOW_LOCAL": str(root)}
    with running_roles(root / "up", **settings) as roles:
        up = roles.start("gitops_reconciler.cli", "up", "--port", "0", "--no-flower")
        found = Place(roles.folder / "state", upstream, root / "world")

        def is_settled() -> bool:
            try:
                counts = json.loads(found.fetch("targets"))["counts"]
            except (OSError, ValueError):
                return False
            return bool(counts == {"ready": 2, "failed": 1})

        assert eventually(is_settled, within=90), up.text()
        yield found


@pytest.fixture(autouse=True)
def environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands find the fleet as a person's do: by its state folder."""
    monkeypatch.setenv("GITOPS_STATE_DIR", str(place.state))


def test_targets_are_listed_with_revision_reason_and_message(place: Place, capsys: Printed) -> None:
    assert main(["targets"]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split() == ["NAME", "KIND", "STATUS", "REVISION", "RUN", "WHY", "MESSAGE"]
    assert [line.split()[0] for line in lines] == ["default/bad", "default/lazy", "default/web"]
    assert place.upstream.head[:12] in lines[2]
    assert "No such file or directory" in lines[0]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--status", "failed"], ["default/bad"]),
        (["--kind", "note", "--status", "ready"], ["default/web"]),
        (["--label", "who=lazy"], ["default/lazy"]),
        (["--match", "we"], ["default/web"]),
        (["--sort", "status", "--limit", "1"], ["default/bad"]),
        (["--pool", "nowhere"], []),
    ],
)
def test_lists_of_targets_can_be_narrowed(options: list[str], names: list[str], capsys: Printed) -> None:
    assert main(["targets", *options]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == names


def test_json_is_the_body_of_the_api_as_it_came(place: Place, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for words, path in (
        (["targets"], "targets?sort=name&limit=100"),
        (["targets", "web"], "targets/web"),
        (["runs", "web", "--limit", "3"], "runs?target=web&limit=3"),
        (["source", "list"], "sources"),
    ):
        assert main([*words, "-o", "json"]) == 0
        assert capfdbinary.readouterr().out == place.fetch(path) + b"\n"


def test_one_target_is_shown_with_all_that_is_known(place: Place, capsys: Printed) -> None:
    assert main(["targets", "web"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("default/web\n")
    for part in (
        place.upstream.head,
        "note (pool custom)",
        "gitops/web.yaml of ",
        "who=web",
        "by push and by hand only",
    ):
        assert part in shown


@pytest.mark.parametrize("words", [["targets", "wbe"], ["enqueue", "wbe"], ["runs", "wbe"]])
def test_an_unknown_target_is_exit_2_with_a_suggestion(words: list[str], capsys: Printed) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert "unknown target 'wbe' (did you mean: web" in captured.err
    assert captured.out == ""


@pytest.mark.req("RM.3")
def test_an_ask_is_answered_at_once_and_can_be_waited_for(place: Place, capsys: Printed) -> None:
    assert main(["enqueue", "lazy"]) == 0
    assert capsys.readouterr().out.startswith("default/lazy queued (generation ")
    assert main(["enqueue", "web", "lazy", "--wait", "60"]) == 0
    web, lazy = capsys.readouterr().out.splitlines()
    assert web == f"default/web no_change  as declared  at {place.upstream.head[:12]}"
    assert lazy.startswith("default/lazy no_change  slept")


def test_a_run_that_fails_while_it_is_waited_for_is_exit_1(capsys: Printed) -> None:
    assert main(["enqueue", "bad", "--wait", "60"]) == 1
    assert capsys.readouterr().out.startswith("default/bad failed  ")


def test_a_wait_that_is_too_short_is_exit_1_and_the_ask_stands(capsys: Printed) -> None:
    assert main(["enqueue", "lazy", "--wait", "0.5"]) == 1
    assert "default/lazy has not ended yet (status running); the ask stands" in capsys.readouterr().err
    assert main(["enqueue", "lazy", "--wait", "60"]) == 0


def test_one_unknown_name_does_not_keep_the_others_from_being_asked(capsys: Printed) -> None:
    assert main(["enqueue", "nope", "web"]) == 2
    captured = capsys.readouterr()
    assert "unknown target 'nope'" in captured.err
    assert captured.out.startswith("default/web ")


def test_runs_are_listed_and_the_beginning_of_an_id_finds_the_log(place: Place, capsys: Printed) -> None:
    assert main(["enqueue", "bad", "--wait", "60"]) == 1
    capsys.readouterr()
    assert main(["runs", "bad"]) == 0
    title, latest, *_ = capsys.readouterr().out.splitlines()
    assert "TARGET" not in title.split()
    assert latest.split()[1] == "failed"
    assert main(["runs", "--log", latest.split()[0]]) == 0
    assert "No such file or directory" in capsys.readouterr().out
    assert main(["runs"]) == 0
    assert "default/bad" in capsys.readouterr().out
    assert main(["runs", "--log", "zzz"]) == 2


def test_sources_are_added_synced_and_removed(place: Place, capsys: Printed) -> None:
    other = GitUpstream.create(place.world, "other")
    other.publish({"deploy/dns.yaml": f"{KIND}"}, "one")
    register = ["source", "add", "other", "--repo", str(other.bare), "--path", "deploy", "--interval", "0"]
    assert main([*register, "--allow", "kinds=note,ansible", "--wait", "60"]) == 0
    assert capsys.readouterr().out.startswith("source:other ")
    registered = json.loads(place.fetch("sources/other"))
    assert (registered["path"], registered["interval"]) == ("deploy", 0)
    assert registered["allow"]["kinds"] == ["note", "ansible"]
    assert main(["source", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", "default", "other"]
    assert main(["source", "sync", "other", "--wait", "60"]) == 0
    assert main(["source", "remove", "other"]) == 0
    assert "other" not in place.fetch("sources").decode()


@pytest.mark.parametrize("verb", ["sync", "remove"])
def test_an_unknown_source_is_exit_2_with_a_suggestion(verb: str, capsys: Printed) -> None:
    assert main(["source", verb, "defualt"]) == 2
    assert "unknown source 'defualt' (did you mean 'default'?)" in capsys.readouterr().err


def test_a_source_that_may_not_be_used_is_refused_with_the_reason(capsys: Printed) -> None:
    assert main(["source", "add", "x", "--repo", "/etc"]) == 2
    assert "does not lie below GITOPS_GIT_ALLOW_LOCAL" in capsys.readouterr().err


@pytest.mark.req("R0.26")
def test_a_tick_of_the_fleet_runs_in_this_process_under_the_lease(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("GITOPS_REDIS_URL", f"unix://{Layout(place.state).redis_socket}")
    monkeypatch.setenv("GITOPS_GIT_ALLOW_LOCAL", str(place.world.parent))
    command = [sys.executable, "-m", "gitops_reconciler.cli", "tick"]
    done = subprocess.run([*command, "web"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"default/web no_change  as declared  at {place.upstream.head[:12]}\n"
    (latest, *_) = json.loads(place.fetch("runs?target=web"))["items"]
    assert [cause["trigger"] for cause in latest["causes"]] == ["manual"]
    assert "@" in latest["causes"][0]["actor"]
    assert main(["tick", "wbe"]) == 2


def test_a_tick_of_a_target_that_a_worker_runs_is_skipped_with_exit_0(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    assert main(["enqueue", "lazy"]) == 0
    assert eventually(lambda: json.loads(place.fetch("targets/lazy"))["status"] == "running")
    capsys.readouterr()
    monkeypatch.setenv("GITOPS_REDIS_URL", f"unix://{Layout(place.state).redis_socket}")
    assert main(["tick", "lazy"]) == 0
    assert "default/lazy skipped  not to be had now (running); the ask is kept" in capsys.readouterr().out


def test_ctrl_c_interrupts_the_run_of_a_fleet_tick_and_its_end_is_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["enqueue", "lazy", "--wait", "60"]) == 0
    monkeypatch.setenv("GITOPS_REDIS_URL", f"unix://{Layout(place.state).redis_socket}")
    monkeypatch.setenv("GITOPS_GIT_ALLOW_LOCAL", str(place.world.parent))
    child = subprocess.Popen([sys.executable, "-m", "gitops_reconciler.cli", "tick", "lazy"])

    def latest() -> dict[str, str]:
        (run,) = json.loads(place.fetch("runs?target=lazy&limit=1"))["items"]
        full: dict[str, str] = json.loads(place.fetch(f"runs/{run['run']}"))
        return full

    assert eventually(lambda: latest()["state"] == "running" and "apply" in latest()["log"], within=30)
    interrupted = latest()["run"]
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    ended = json.loads(place.fetch(f"runs/{interrupted}"))
    assert (ended["state"], ended["reason"]) == ("aborted", "Interrupted")


def test_tokens_are_made_used_and_revoked_without_the_api(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    file = tmp_path / "token"
    try:
        assert main(["token", "create", "ci", "--role", "operator"]) == 0
        captured = capsys.readouterr()
        assert "from now on every call of the API needs a token" in captured.err
        assert main(["token", "create", "eyes", "--file", str(file)]) == 0
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().strip() not in capsys.readouterr().out
        assert main(["token", "create", "ci"]) == 2
        assert main(["targets"]) == 1
        assert "it wants a token" in capsys.readouterr().err
        assert main(["targets", "--token-file", str(file)]) == 0
        assert main(["enqueue", "web", "--token-file", str(file)]) == 1
        assert "refused: this needs the role operator" in capsys.readouterr().err
        monkeypatch.setenv("GITOPS_TOKEN", captured.out.strip())
        assert main(["enqueue", "web"]) == 0
        assert main(["token", "list"]) == 0
        assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[-2:]] == [
            ["ci", "operator"],
            ["eyes", "viewer"],
        ]
    finally:
        assert [main(["token", "revoke", name]) for name in ("ci", "eyes")] == [0, 0]
    assert capsys.readouterr().err.count("it was the last one") == 1
    monkeypatch.delenv("GITOPS_TOKEN")
    assert main(["targets"]) == 0
    assert main(["token", "revoke", "ci"]) == 2


def test_nobody_at_the_address_is_exit_3_with_a_clear_line(capsys: Printed) -> None:
    assert main(["targets", "--server", "http://127.0.0.1:1"]) == 3
    assert "http://127.0.0.1:1 does not answer (Connection refused)" in capsys.readouterr().err


def test_no_fleet_on_the_state_folder_is_exit_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("GITOPS_STATE_DIR", str(tmp_path))
    assert [main(words) for words in (["targets"], ["token", "list"])] == [3, 3]
    assert "no `gitops up` runs on" in capsys.readouterr().err


def test_a_store_that_does_not_answer_is_exit_3(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setenv("GITOPS_REDIS_URL", "redis://127.0.0.1:1/0")
    assert [main(words) for words in (["tick", "web"], ["token", "list"])] == [3, 3]
    assert "redis did not" in capsys.readouterr().err
