"""Ansible, replayed: what real playbook runs said, and what we make of it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gitops_reconciler.backends.ansible import AnsibleBackend, literal_yaml
from gitops_reconciler.backends.base import BackEnd
from gitops_reconciler.errors import ToolMissingError, UnreachableError
from gitops_reconciler.models import AnsibleConfig, ApplyResult, ChangeCounts
from gitops_reconciler.testing.backends import Call, MemoryLog, Recorded, ReplayingRunner, make_tools

RECORDED = Path(__file__).parent / "ansible"
CASES: list[dict[str, Any]] = json.loads((RECORDED / "cases.json").read_text(encoding="utf-8"))


def replay(name: str, *, numbers: bool = True, effect: Callable[[Call], None] | None = None) -> Recorded:
    said = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))

    def write(call: Call) -> None:
        if numbers and said["numbers"] is not None:
            Path(call.env["GITOPS_EVENTS_FILE"]).write_text(json.dumps(said["numbers"]))
        if effect is not None:
            effect(call)

    return Recorded(
        words=(),
        returncode=said["exit"],
        stdout="\n".join(said["stdout"]),
        stderr="\n".join(said["stderr"]),
        effect=write,
    )


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    tool = tmp_path / "bin" / "ansible-playbook"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    file = tmp_path / "playbooks" / "site.yml"
    file.parent.mkdir()
    file.write_text("[]\n")
    return file


def backend(
    playbook: Path, answer: Recorded, *, env: dict[str, str] | None = None, log: MemoryLog | None = None, **fields: Any
) -> tuple[AnsibleBackend, ReplayingRunner]:
    runner = ReplayingRunner([answer])
    path = str(playbook.parent.parent / "bin")
    tools = make_tools(runner, env={"PATH": path, "HOME": "/nonexistent", **(env or {})}, log=log)
    fields = {"inventory": "web1,web2,", **fields}
    return AnsibleBackend(AnsibleConfig(playbook=playbook, **fields), tools), runner


@pytest.mark.req("R0.48", "R0.49")
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["recorded"]))
def test_what_a_real_playbook_said_is_understood(playbook: Path, case: dict[str, Any]) -> None:
    made, _ = backend(playbook, replay(case["recorded"]))
    status = made.apply()
    assert status.result is ApplyResult(case["result"])
    assert status.message.startswith(case["message"])
    assert status.message
    if "changed" in case:
        assert status.counts == ChangeCounts(changed=case["changed"])
    assert made.get_outputs() == case.get("outputs", {})


@pytest.mark.req("R0.48")
def test_without_our_plugin_the_recap_counts(playbook: Path) -> None:
    made, _ = backend(playbook, replay("changed", numbers=False))
    status = made.apply()
    assert (status.result, status.message) == (ApplyResult.CHANGED, "web1 changed=1, web2 changed=0")


@pytest.mark.req("R0.48")
def test_changes_are_summed_over_hosts(playbook: Path) -> None:
    recap = "".join(
        f"{host} : ok=9 changed={changed} unreachable=0 failed=0 skipped=0\n"
        for host, changed in (("h1", 3), ("h2", 0))
    )
    made, _ = backend(playbook, Recorded(words=(), stdout=recap))
    status = made.apply()
    assert (status.result, status.counts) == (ApplyResult.CHANGED, ChangeCounts(changed=3))


def test_a_run_that_does_not_say_what_it_did_is_no_success(playbook: Path) -> None:
    made, _ = backend(playbook, Recorded(words=(), stdout="{}"))
    status = made.apply()
    assert status.result is ApplyResult.FAILED
    assert "did not say what it did" in status.message


def test_hosts_that_do_not_answer_are_named_with_the_reason(playbook: Path) -> None:
    made, _ = backend(playbook, replay("unreachable"))
    with pytest.raises(
        UnreachableError, match=r"^unreachable: web3: .*Connection refused; web1 changed=1, web2 changed=1"
    ):
        made.apply()


def test_check_mode_says_what_would_change_and_keeps_no_outputs(playbook: Path) -> None:
    made, runner = backend(playbook, replay("check"), dry_run=True)
    status = made.apply()
    assert status.result is ApplyResult.NO_CHANGE
    assert status.message == "dry-run: would change web1 changed=1, web2 changed=0"
    assert "--check" in runner.calls[0].argv
    assert made.get_outputs() == {}


@pytest.mark.req("R0.48")
def test_the_command_names_inventory_limit_variables_and_playbook(playbook: Path) -> None:
    seen: dict[str, Any] = {}

    def look(call: Call) -> None:
        extra = Path(next(word for word in call.argv if word.startswith("@"))[1:])
        seen["mode"] = extra.stat().st_mode & 0o777
        seen["text"] = extra.read_text()

    values = {"greeting": "two words, 'and' \"quotes\"", "n": 3}
    made, runner = backend(playbook, replay("nothing", effect=look), extra_vars=values, limit="web1")
    made.apply()
    argv = runner.calls[0].argv
    assert argv[0].endswith("/bin/ansible-playbook")
    assert argv[3:5] == ("-i", "web1,web2,")
    assert argv[argv.index("--limit") + 1] == "web1"
    assert argv[-1] == str(playbook)
    assert runner.calls[0].cwd == playbook.parent
    assert seen["mode"] == 0o600
    assert not any("two words" in word for word in argv)
    assert seen["text"].startswith('"greeting": "two words')


@pytest.mark.parametrize("inventory", ["hosts.ini", Path("hosts.ini")])
def test_a_path_of_an_inventory_is_made_absolute(playbook: Path, inventory: str | Path) -> None:
    made, runner = backend(playbook, replay("nothing"), inventory=inventory)
    made.apply()
    assert str(Path("hosts.ini").absolute()) in runner.calls[0].argv


def test_nothing_of_a_run_stays_for_the_next(playbook: Path) -> None:
    made, runner = backend(playbook, replay("nothing"), extra_vars={"a": 1})
    made.apply()
    made.apply()
    first, second = (Path(call.env["GITOPS_EVENTS_FILE"]).parent for call in runner.calls)
    assert first != second
    assert not first.exists()
    assert not second.exists()


def test_local_hosts_get_the_python_of_ansible_by_the_weakest_inventory(playbook: Path) -> None:
    seen = []
    made, _ = backend(playbook, replay("nothing", effect=lambda call: seen.append(Path(call.argv[2]).read_text())))
    made.apply()
    variables = yaml.safe_load(seen[0])["all"]["vars"]
    assert "ansible_playbook_python" in variables["ansible_python_interpreter"]


def test_an_interpreter_that_the_environment_names_is_left_alone(playbook: Path) -> None:
    made, runner = backend(playbook, replay("nothing"), env={"ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3"})
    made.apply()
    assert runner.calls[0].argv.count("-i") == 1


def test_an_interpreter_that_ansible_cfg_names_is_left_alone(playbook: Path) -> None:
    (playbook.parent / "ansible.cfg").write_text("[defaults]\ninterpreter_python = /usr/bin/python3\n")
    made, runner = backend(playbook, replay("nothing"))
    made.apply()
    assert runner.calls[0].argv.count("-i") == 1


def test_callback_plugins_of_the_environment_are_kept(playbook: Path) -> None:
    made, runner = backend(playbook, replay("nothing"), env={"ANSIBLE_CALLBACK_PLUGINS": "/mine"})
    made.apply()
    ours, mine = runner.calls[0].env["ANSIBLE_CALLBACK_PLUGINS"].split(":")
    assert mine == "/mine"
    assert (Path(ours) / "gitops_events.py").is_file()


def test_ansible_always_gets_a_utf8_locale(playbook: Path) -> None:
    made, runner = backend(playbook, replay("nothing"))
    made.apply()
    assert runner.calls[0].env["LANG"] == "C.UTF-8"
    other, again = backend(playbook, replay("nothing"), env={"LC_ALL": "de_DE.UTF-8"})
    other.apply()
    assert "LANG" not in again.calls[0].env


def test_connections_that_ansible_left_open_are_ended(playbook: Path) -> None:
    def connect(call: Call) -> None:
        sockets = Path(call.env["ANSIBLE_SSH_CONTROL_PATH_DIR"])
        sockets.mkdir()
        (sockets / "0123456789").touch()

    runner = ReplayingRunner([Recorded(words=("ssh",)), replay("nothing", effect=connect)])
    tools = make_tools(runner, env={"PATH": str(playbook.parent.parent / "bin"), "HOME": "/nonexistent"})
    AnsibleBackend(AnsibleConfig(playbook=playbook, inventory="web1,"), tools).apply()
    ended = runner.calls[-1].argv
    assert ended[:3] == ("ssh", "-O", "exit")
    assert any(word.endswith("/cp/0123456789") for word in ended)


@pytest.mark.req("R0.50")
def test_there_is_no_generic_destroy(playbook: Path) -> None:
    made, runner = backend(playbook, replay("changed"))
    status = made.destroy()
    assert status.result is ApplyResult.FAILED
    assert "no generic destroy" in status.message
    assert "teardown playbook" in status.message
    assert not runner.calls


@pytest.mark.req("R0.50")
def test_a_teardown_playbook_destroys(playbook: Path) -> None:
    made, runner = backend(playbook, replay("changed"), destroy_playbook=playbook.with_name("teardown.yml"))
    assert made.destroy().result is ApplyResult.CHANGED
    assert runner.calls[0].argv[-1].endswith("/teardown.yml")
    assert made.get_outputs() == {}


def test_a_tool_beside_us_is_found_without_path(
    playbook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python3"))
    made, runner = backend(playbook, replay("nothing"), env={"PATH": "/nonexistent"})
    made.apply()
    assert runner.calls[0].argv[0] == str(tmp_path / "bin" / "ansible-playbook")


@pytest.mark.req("R0.56")
def test_a_missing_ansible_is_named_with_how_to_get_it(playbook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python3")
    made, _ = backend(playbook, replay("nothing"), env={"PATH": "/nonexistent"})
    with pytest.raises(ToolMissingError, match=r"'ansible-playbook' was not found.*gitops-reconciler\[ansible\]"):
        made.apply()


def test_the_log_is_what_ansible_printed_and_knows_the_version(playbook: Path) -> None:
    log = MemoryLog()
    made, _ = backend(playbook, replay("failed"), log=log)
    made.apply()
    assert log.tools == {"ansible-core": "2.19.14"}
    assert "TASK [restart]" in log.text
    assert "gitops-event" not in log.text


def test_an_event_broken_by_redaction_does_no_harm(playbook: Path) -> None:
    broken = Recorded(words=(), returncode=2, stderr='::gitops-event:: {"event": ***\nERROR! boom')
    made, _ = backend(playbook, broken)
    status = made.apply()
    assert status.result is ApplyResult.FAILED
    assert status.message.endswith("ERROR! boom")


def test_the_three_methods_are_there(playbook: Path) -> None:
    assert isinstance(backend(playbook, replay("nothing"))[0], BackEnd)


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_constructor("!unsafe", lambda loader, node: ("unsafe", loader.construct_scalar(node)))  # type: ignore[arg-type]  # a scalar by our own making


@pytest.mark.parametrize(
    "text",
    ["a 'b' \"c\" \\d", "line\nbreak\ttab", "é 😀 \u2028 \x85 \x7f", "yes", "1", "1.50", "", "# no comment", "@x: y"],
)
def test_text_reaches_ansible_as_it_is(text: str) -> None:
    loaded = yaml.load(literal_yaml({"v": text, "l": [text], "m": {text: text}}), Loader=_Loader)
    assert loaded == {"v": text, "l": [text], "m": {text: text}}


@pytest.mark.parametrize("text", ["{{ 7*7 }}", "x {% if y %}", "a {# b #}", "{{ lookup('pipe', \"id\") }}\n"])
def test_what_looks_like_a_template_is_marked_as_data(text: str) -> None:
    loaded = yaml.load(literal_yaml({"v": text, "m": {"k": [text]}}), Loader=_Loader)
    assert loaded == {"v": ("unsafe", text), "m": {"k": [("unsafe", text)]}}


@pytest.mark.parametrize("value", [1, 1.5, True, False, None, [1, [2]], {"a": {"b": 1}}, [], {}])
def test_other_values_keep_their_type(value: object) -> None:
    assert yaml.load(literal_yaml({"v": value}), Loader=_Loader) == {"v": value}
