"""Ansible for real, beyond what all kinds have in common: data that looks like code, hosts that do not answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.backends.ansible import AnsibleBackend
from gitops_reconciler.errors import UnreachableError
from gitops_reconciler.models import AnsibleConfig, ApplyResult
from gitops_reconciler.processes import SubprocessRunner
from gitops_reconciler.testing.backends import MemoryLog, make_tools
from tests.support.backend_kinds import Ansible as Kind
from tests.support.backend_kinds import environment

Build = Callable[..., AnsibleBackend]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    env = {**environment(Kind, tmp_path), "ANSIBLE_SSH_RETRIES": "0"}

    def make(*tasks: dict[str, Any], log: MemoryLog | None = None, **fields: Any) -> AnsibleBackend:
        play = {"hosts": "all", "gather_facts": False, "tasks": list(tasks)}
        (tmp_path / "site.yml").write_text(json.dumps([play]))
        (tmp_path / "hosts.ini").write_text("one ansible_connection=local\ntwo ansible_connection=local\n")
        config = AnsibleConfig(**{"playbook": tmp_path / "site.yml", "inventory": tmp_path / "hosts.ini", **fields})
        return AnsibleBackend(config, make_tools(SubprocessRunner(), env=env, log=log))

    return make


@pytest.mark.req("R0.48", "R0.49")
def test_values_reach_the_playbook_as_data_and_never_as_templates(build: Build) -> None:
    values = {
        "quotes": "two words, 'one' \"two\" \\ é 😀",
        "template": "{{ lookup('pipe', 'echo pwned') }}",
        "nested": {"list": ["{{ 1 + 1 }}", 2, True, None]},
        "lines": "a\nb\n",
        "version": "1.50",
        "answer": "yes",
    }
    back = {"set_stats": {"data": {name: f"{{{{ {name} }}}}" for name in values}}, "run_once": True}
    made = build(back, extra_vars=values)
    assert made.apply().result is ApplyResult.NO_CHANGE
    assert made.get_outputs() == values


@pytest.mark.req("R0.48")
def test_changes_are_summed_over_real_hosts(build: Build) -> None:
    made = build({"command": "true", "when": "inventory_hostname == 'two'"})
    status = made.apply()
    assert (status.result, status.message) == (ApplyResult.CHANGED, "one changed=0, two changed=1")


def test_a_host_that_does_not_answer_is_unreachable_and_named(build: Build, tmp_path: Path) -> None:
    made = build({"ping": {}})
    (tmp_path / "hosts.ini").write_text("one ansible_connection=local\ndark ansible_host=127.0.0.1 ansible_port=1\n")
    with pytest.raises(UnreachableError, match=r"^unreachable: dark: .*refused"):
        made.apply()


def test_a_limit_that_matches_nobody_is_a_failure_that_says_so(build: Build) -> None:
    status = build({"ping": {}}, limit="nobody").apply()
    assert status.result is ApplyResult.FAILED
    assert "leaves us with no hosts to target" in status.message


def test_an_inline_inventory_works_with_the_playbooks_own_connection(build: Build) -> None:
    log = MemoryLog()
    made = build({"ping": {}}, inventory="three,", extra_vars={"ansible_connection": "local"}, log=log)
    status = made.apply()
    assert (status.result, status.message) == (ApplyResult.NO_CHANGE, "three changed=0"), log.text
