"""Declared kinds, replayed: exit codes, input, environment, outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.backends.base import BackEnd
from gitops_reconciler.backends.declared import DeclaredBackend
from gitops_reconciler.errors import ReconcileError
from gitops_reconciler.models import ApplyResult, DeclaredConfig, Scripts
from gitops_reconciler.testing.backends import MemoryLog, Recorded, ReplayingRunner, make_tools

BASH = ("bash", "--noprofile", "--norc")


def backend(
    answer: Recorded, *, scripts: Scripts | None = None, log: MemoryLog | None = None, **fields: Any
) -> tuple[DeclaredBackend, ReplayingRunner]:
    runner = ReplayingRunner([answer])
    scripts = scripts or Scripts(apply="true", destroy="true", outputs="true")
    config = DeclaredConfig(declared_kind="stdshell", scripts=scripts, workdir=Path("/srv/here"), **fields)
    tools = make_tools(runner, env={"PATH": "/bin", "GITOPS_TARGET": "default/web"}, log=log)
    return DeclaredBackend(config, tools), runner


@pytest.mark.parametrize(
    ("code", "result"),
    [(0, ApplyResult.NO_CHANGE), (3, ApplyResult.CHANGED), (1, ApplyResult.FAILED), (2, ApplyResult.FAILED)],
)
def test_the_exit_code_is_the_result_and_stdout_the_message(code: int, result: ApplyResult) -> None:
    for act in ("apply", "destroy"):
        made, _ = backend(Recorded(words=BASH, returncode=code, stdout="as said\n"))
        status = getattr(made, act)()
        assert status.result is result
        assert status.message.startswith("as said")


def test_a_failure_says_how_it_ended_and_what_stderr_had() -> None:
    made, _ = backend(Recorded(words=BASH, returncode=7, stdout="trying", stderr="no such host\n"))
    assert made.apply().message == "trying\nno such host (exit 7)"


def test_a_silent_failure_has_a_message() -> None:
    made, _ = backend(Recorded(words=BASH, returncode=-9))
    assert made.apply().message == "the script ended with signal 9 and said nothing"


def test_a_long_message_keeps_its_end() -> None:
    made, _ = backend(Recorded(words=BASH, returncode=3, stdout="x" * 5000 + "end"))
    message = made.apply().message
    assert len(message) == 2000
    assert message.endswith("end")


def test_spec_and_inputs_arrive_as_json_on_stdin_and_in_the_environment() -> None:
    spec = {"say": "two words", "times": 3, "loud": True, "none": None, "on-call": ["a", {"b": 1}]}
    made, runner = backend(Recorded(words=BASH), spec=spec, inputs={"zone": "z1"}, env={"TOKEN": "t"})
    made.apply()
    call = runner.calls[0]
    assert json.loads(call.stdin) == {"kind": "stdshell", "name": "default/web", "spec": spec, "inputs": {"zone": "z1"}}
    assert json.loads(call.env["GITOPS_SPEC"]) == spec
    assert json.loads(call.env["GITOPS_INPUTS"]) == {"zone": "z1"}
    assert {name: call.env[name] for name in ("SPEC_SAY", "SPEC_TIMES", "SPEC_LOUD", "SPEC_NONE", "TOKEN")} == {
        "SPEC_SAY": "two words",
        "SPEC_TIMES": "3",
        "SPEC_LOUD": "true",
        "SPEC_NONE": "",
        "TOKEN": "t",
    }
    assert json.loads(call.env["SPEC_ON_CALL"]) == ["a", {"b": 1}]
    assert call.cwd == Path("/srv/here")


def test_bash_is_told_the_script_and_what_to_call_it_in_errors() -> None:
    made, runner = backend(Recorded(words=BASH), scripts=Scripts(apply="echo $0\n"))
    made.apply()
    assert runner.calls[0].argv == (*BASH, "-c", "echo $0\n", "apply.sh")


def test_without_a_destroy_script_destroying_fails_and_says_why() -> None:
    made, runner = backend(Recorded(words=BASH), scripts=Scripts(apply="true"))
    status = made.destroy()
    assert status.result is ApplyResult.FAILED
    assert status.message == "kind 'stdshell' declares no destroy script: nothing was destroyed"
    assert not runner.calls


def test_outputs_are_the_object_that_the_script_prints() -> None:
    made, _ = backend(Recorded(words=BASH, stdout='{"url": "http://x", "ports": [1]}\n'))
    assert made.get_outputs() == {"url": "http://x", "ports": [1]}


def test_there_are_no_outputs_without_a_script_or_when_it_fails() -> None:
    assert backend(Recorded(words=BASH), scripts=Scripts(apply="true"))[0].get_outputs() == {}
    assert backend(Recorded(words=BASH, returncode=1, stdout="gone"))[0].get_outputs() == {}


@pytest.mark.parametrize(
    ("printed", "complaint"),
    [
        ("url=http://x", "must print a JSON object: Expecting value.* it printed: url=http://x"),
        ("", "must print a JSON object: .* it printed: nothing"),
        ("[1, 2]", "must print a JSON object, not list"),
    ],
)
def test_outputs_that_are_no_json_object_are_a_clear_error(printed: str, complaint: str) -> None:
    made, _ = backend(Recorded(words=BASH, stdout=printed))
    with pytest.raises(ReconcileError, match=f"outputs script of kind 'stdshell' {complaint}"):
        made.get_outputs()


def test_both_streams_go_to_the_log() -> None:
    log = MemoryLog()
    made, _ = backend(Recorded(words=BASH, stdout="out", stderr="err"), log=log)
    made.apply()
    assert log.lines == ["out", "err"]
    assert log.phases == ["apply"]


def test_the_three_methods_are_there() -> None:
    assert isinstance(backend(Recorded(words=BASH))[0], BackEnd)
