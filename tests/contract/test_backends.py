"""One suite for every kind of backend, with its real engine."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from gitops_reconciler.backends.registry import build_backend
from gitops_reconciler.errors import DeadlineExceededError, ReconcileError, ToolMissingError
from gitops_reconciler.models import ApplyResult, BackEnd, BackendConfig, Status
from gitops_reconciler.processes import SubprocessRunner
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.testing.backends import MemoryLog, make_tools
from tests.support.backend_kinds import CANARY, KINDS, OUTPUTS, Kind, environment, hide_tools
from tests.support.processes import OnceThere, eventually, lives, pid_in

Build = Callable[..., BackEnd]


@pytest.fixture(params=KINDS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> type[Kind]:
    made: type[Kind] = request.param
    return made


@pytest.fixture
def target(kind: type[Kind], tmp_path: Path) -> Kind:
    folder = tmp_path / "target"
    folder.mkdir()
    return kind(folder)


@pytest.fixture
def env(kind: type[Kind], tmp_path: Path) -> Mapping[str, str]:
    return environment(kind, tmp_path)


@pytest.fixture
def build(target: Kind, env: Mapping[str, str]) -> Build:
    """Builds the target's backend anew, as every tick does."""

    def make(config: BackendConfig | None = None, **tools: Any) -> BackEnd:
        redactor = tools.pop("redactor", None)
        runner = SubprocessRunner(grace_seconds=1, redactor=redactor)
        return build_backend(config or target.config(), make_tools(runner, **{"env": env, **tools}))

    return make


def results(*statuses: Status) -> list[str]:
    return [status.result.value for status in statuses]


@pytest.mark.req("R0.29", "R0.31", "R0.48")
def test_the_first_apply_changes_and_the_second_does_not(target: Kind, build: Build) -> None:
    assert target.state() is None
    assert results(build().apply()) == ["changed"]
    made = target.state()
    assert made is not None
    assert results(build().apply(), build().apply()) == ["no_change", "no_change"]
    assert target.state() == made


def test_an_edit_of_the_declaration_is_applied(target: Kind, build: Build) -> None:
    build().apply()
    before = target.state()
    target.edit()
    assert results(build().apply(), build().apply()) == ["changed", "no_change"]
    assert target.state() not in (None, before)


@pytest.mark.req("R0.55")
def test_what_was_changed_by_others_is_set_right(target: Kind, build: Build) -> None:
    build().apply()
    made = target.state()
    target.damage()
    assert target.state() != made
    assert results(build().apply(), build().apply()) == ["changed", "no_change"]
    assert target.state() == made


def test_an_invalid_declaration_fails_with_what_to_mend_and_loses_nothing(target: Kind, build: Build) -> None:
    build().apply()
    made = target.state()
    complaint = target.spoil()
    status = build().apply()
    assert status.result is ApplyResult.FAILED
    with pytest.raises(AssertionError, match=complaint):
        raise AssertionError(status.message)
    assert target.state() == made
    target.mend()
    assert results(build().apply()) == ["no_change"]


@pytest.mark.req("R0.35", "R0.50")
def test_destroy_tears_down_and_destroying_nothing_is_no_change(target: Kind, build: Build) -> None:
    build().apply()
    assert results(build().destroy()) == ["changed"]
    assert target.state() is None
    assert results(build().destroy()) == ["no_change"]
    assert build().get_outputs() == {}
    assert results(build().apply()) == ["changed"]


@pytest.mark.req("R0.34", "R0.49")
def test_outputs_keep_their_types(build: Build) -> None:
    made = build()
    made.apply()
    assert made.get_outputs() == OUTPUTS


def test_before_the_first_apply_there_are_no_outputs(build: Build) -> None:
    assert build().get_outputs() == {}


@pytest.mark.req("R0.37")
def test_a_dry_run_says_what_would_change_and_changes_nothing(target: Kind, build: Build) -> None:
    if not target.has_dry_run:
        assert "dry_run" not in type(target.config()).model_fields
        return
    status = build(target.config(dry_run=True)).apply()
    assert status.result is ApplyResult.NO_CHANGE
    assert status.message.startswith("dry-run: would change")
    assert status.counts is not None
    assert target.state() is None
    build().apply()
    made = target.state()
    target.edit()
    assert build(target.config(dry_run=True)).apply().message.startswith("dry-run: would change")
    assert build(target.config(dry_run=True)).destroy().message.startswith("dry-run: would change")
    assert target.state() == made


@pytest.mark.req("R0.57")
def test_an_overdue_apply_is_ended_with_everything_it_started(target: Kind, build: Build) -> None:
    build().apply()
    target.hang()
    with pytest.raises(DeadlineExceededError, match="timed out after"):
        build(deadline=OnceThere(path=target.folder / "tool.pid")).apply()
    tool, child = pid_in(target.folder / "tool.pid"), pid_in(target.folder / "child.pid")
    assert eventually(lambda: not lives(tool) and not lives(child))
    assert target.state() is not None


@pytest.mark.req("R0.56")
def test_a_missing_tool_is_named(target: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    made = build_backend(target.config(), make_tools(SubprocessRunner(), env=hide_tools(monkeypatch)))
    with pytest.raises(ToolMissingError, match=f"'{target.tool}' was not found"):
        made.apply()


def test_a_missing_folder_is_a_failure_that_names_it(target: Kind, build: Build) -> None:
    target.folder.rename(target.folder.with_name("moved"))
    with pytest.raises(ReconcileError, match=r"the folder '.*target.*' does not exist"):
        build().apply()


@pytest.mark.req("R0.60")
def test_no_input_is_ever_waited_for(target: Kind, env: Mapping[str, str]) -> None:
    code = (
        "import sys; from pydantic import TypeAdapter; from gitops_reconciler import BackendConfig, build_backend;"
        "config = TypeAdapter(BackendConfig).validate_json(sys.argv[1]);"
        "print(build_backend(config).apply().result.value)"
    )
    config = TypeAdapter[BackendConfig](BackendConfig).dump_json(target.config()).decode()
    shell = 'exec "$0" -c "$1" "$2" <&-'  # not even /dev/null
    ended = subprocess.run(
        ["sh", "-c", shell, sys.executable, code, config],
        env={**env, "GITOPS_STATE_DIR": str(target.folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == ("changed\n", 0), ended.stderr


@pytest.mark.req("R0.34")
@pytest.mark.parametrize("and_fail", [False, True])
def test_a_secret_appears_neither_in_the_message_nor_in_the_log(target: Kind, build: Build, and_fail: bool) -> None:
    log = MemoryLog()
    status = build(target.tell_secret(and_fail=and_fail), log=log, redactor=Redactor([CANARY])).apply()
    assert (status.result is ApplyResult.FAILED) is and_fail
    assert CANARY not in f"{status.message}\n{log.text}"
    assert "***" in log.text, "the canary was printed at all"


@pytest.mark.req("R0.30")
def test_the_backend_is_told_nothing_of_why_it_runs(build: Build) -> None:
    made = build()
    for name in ("apply", "destroy", "get_outputs"):
        assert not inspect.signature(getattr(made, name)).parameters


def test_the_tools_that_took_part_are_noted(target: Kind, build: Build) -> None:
    log = MemoryLog()
    build(log=log).apply()
    assert log.phases[-1] == "apply"
    if target.tool != "bash":
        assert all(version[0].isdigit() for version in log.tools.values())
        assert log.tools


def test_nothing_is_written_to_our_own_output(build: Build, capfd: pytest.CaptureFixture[str]) -> None:
    build().apply()
    assert capfd.readouterr() == ("", "")


def test_our_working_folder_does_not_matter(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert results(build().apply()) == ["changed"]
    assert not list(elsewhere.iterdir())
