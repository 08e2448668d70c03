"""One real target of each kind of backend, as the contract suite needs it: made, edited, damaged, broken, hung.

A kind that joins gets a class here and a row in `KINDS`; the suite itself stays as it is.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from gitops_reconciler.models import (
    AnsibleConfig,
    BackendConfig,
    DeclaredConfig,
    OpenTofuConfig,
    Scripts,
    TerraformConfig,
)
from tests.support.tools import require

CANARY = "c4n4ry-5ecret-value"
OUTPUTS = {"text": "right", "number": 3, "flag": True, "list": ["a", "b"], "nested": {"k": "v"}}
"""What every kind's target puts out, so that types are compared across kinds."""

_HANG = "sleep 600 & echo $! > {folder}/child.pid; echo $$ > {folder}/tool.pid; wait"


class Kind(Protocol):
    """One target in a folder of its own."""

    name: ClassVar[str]
    tool: ClassVar[str]
    """What must be on PATH."""
    has_dry_run: ClassVar[bool]

    folder: Path

    def __init__(self, folder: Path) -> None:
        """Write the first version of its declaration."""
        ...

    def config(self, **changes: Any) -> BackendConfig:
        """The config of the target."""
        ...

    def edit(self) -> None:
        """Change the declaration, so that an apply has something to do."""
        ...

    def damage(self) -> None:
        """Change or remove the real thing behind the backend's back."""
        ...

    def spoil(self) -> str:
        """Make the declaration invalid; returns a regular expression of what must be in the message."""
        ...

    def mend(self) -> None:
        """Take `spoil` back."""
        ...

    def hang(self) -> None:
        """Make the next apply hang, with its pids in `tool.pid` and `child.pid`."""
        ...

    def tell_secret(self, *, and_fail: bool) -> BackendConfig:
        """Return a config that carries the canary, of a declaration that prints it wherever it can."""
        ...

    def state(self) -> object:
        """What really exists, comparable; None when nothing does."""
        ...


class Terraform:
    """Resources that Terraform brings along; the real thing is what the state holds."""

    name: ClassVar[str] = "terraform"
    tool: ClassVar[str] = "terraform"
    has_dry_run: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = folder / "state"
        self._module = folder / "module"
        self._module.mkdir()
        self._write("right")

    def _write(self, text: str, more: str = "") -> None:
        outputs = "".join(
            f'output "{name}" {{\n  value = {json.dumps(value if name != "text" else text)}\n}}\n'
            for name, value in OUTPUTS.items()
        )
        thing = f'resource "terraform_data" "thing" {{\n  input = "{text}"\n}}\n'
        (self._module / "main.tf").write_text(thing + outputs + more)

    def config(self, **changes: Any) -> TerraformConfig | OpenTofuConfig:
        return TerraformConfig(workdir=self._module, state_dir=self._state, **changes)

    def edit(self) -> None:
        self._write("edited")

    def damage(self) -> None:
        file = self._state / "default.tfstate"
        state = json.loads(file.read_text())
        file.write_text(json.dumps({**state, "serial": state["serial"] + 1, "resources": []}))

    def spoil(self) -> str:
        (self._module / "spoilt.tf").write_text('resource "terraform_data" {}\n')
        return r"^init failed: Missing name for resource\s+on spoilt\.tf line 1"

    def mend(self) -> None:
        (self._module / "spoilt.tf").unlink()

    def hang(self) -> None:
        command = json.dumps(_HANG.format(folder=self.folder))
        provisioner = (
            f'resource "terraform_data" "slow" {{\n  provisioner "local-exec" {{\n    command = {command}\n  }}\n}}\n'
        )
        self._write("right", provisioner)

    def tell_secret(self, *, and_fail: bool) -> TerraformConfig | OpenTofuConfig:
        command = f"echo $CANARY; echo $CANARY >&2; exit {int(and_fail)}"
        told = (
            'variable "secret" {}\n'
            'output "told" {\n  value = "${var.secret}"\n}\n'
            f'resource "terraform_data" "tell" {{\n  provisioner "local-exec" {{\n    command = "{command}"\n  }}\n}}\n'
        )
        self._write("right", told)
        return self.config(variables={"secret": CANARY}, env={"CANARY": CANARY})

    def state(self) -> object:
        file = self._state / "default.tfstate"
        resources = json.loads(file.read_text())["resources"] if file.exists() else []
        return [(one["name"], one["instances"][0]["attributes"]["input"]) for one in resources] or None


class OpenTofu(Terraform):
    """OpenTofu is not to be had everywhere: its flavour runs Terraform under the name `tofu`."""

    name: ClassVar[str] = "opentofu"
    tool: ClassVar[str] = "tofu"

    def config(self, **changes: Any) -> OpenTofuConfig:
        return OpenTofuConfig(workdir=self._module, state_dir=self._state, **changes)


class Ansible:
    """A playbook that writes one file on this machine."""

    name: ClassVar[str] = "ansible"
    tool: ClassVar[str] = "ansible-playbook"
    has_dry_run: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "real.txt"
        (folder / "hosts.ini").write_text("here ansible_connection=local\n")
        self._playbook("teardown.yml", [{"file": {"path": str(self._file), "state": "absent"}}])
        self._write("right")

    def _playbook(self, name: str, tasks: list[dict[str, Any]]) -> None:
        play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
        (self.folder / name).write_text(json.dumps([play]))  # JSON is YAML

    def _write(self, text: str, *more: dict[str, Any]) -> None:
        tasks = [
            {"name": "one file", "copy": {"dest": str(self._file), "content": text}},
            {"name": "outputs", "set_stats": {"data": {**OUTPUTS, "text": text}}},
            *more,
        ]
        self._playbook("site.yml", tasks)

    def config(self, **changes: Any) -> AnsibleConfig:
        return AnsibleConfig(
            playbook=self.folder / "site.yml",
            inventory=self.folder / "hosts.ini",
            destroy_playbook=self.folder / "teardown.yml",
            **changes,
        )

    def edit(self) -> None:
        self._write("edited")

    def damage(self) -> None:
        self._file.write_text("wrong")

    def spoil(self) -> str:
        self._kept = (self.folder / "site.yml").read_text()
        (self.folder / "site.yml").write_text("- hosts: all\n  tasks:\n    - nosuchmodule: {}\n")
        return r"couldn't resolve module/action 'nosuchmodule'"

    def mend(self) -> None:
        (self.folder / "site.yml").write_text(self._kept)

    def hang(self) -> None:
        self._write("right", {"name": "slow", "shell": _HANG.format(folder=self.folder)})

    def tell_secret(self, *, and_fail: bool) -> AnsibleConfig:
        self._write(
            "right",
            {"name": "tell", "debug": {"msg": "it is {{ secret }}"}},
            {"name": "tell again", "shell": f"echo $CANARY; echo $CANARY >&2; exit {int(and_fail)}"},
        )
        return self.config(extra_vars={"secret": CANARY}, env={"CANARY": CANARY})

    def state(self) -> object:
        return self._file.read_text() if self._file.exists() else None


class Declared:
    """A kind of three scripts that keep one file."""

    name: ClassVar[str] = "declared"
    tool: ClassVar[str] = "bash"
    has_dry_run: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._text = "right"
        self._file = folder / "real.txt"
        self._apply = (
            '[ "$(cat real.txt 2>/dev/null)" = "$SPEC_SAY" ] && { echo as it should be; exit 0; }\n'
            'printf %s "$SPEC_SAY" > real.txt; echo "wrote $SPEC_SAY"; exit 3\n'
        )

    def config(self, **changes: Any) -> DeclaredConfig:
        outputs = {**OUTPUTS, "text": self._text}
        scripts = Scripts(
            apply=self._apply,
            destroy="[ -e real.txt ] || exit 0; rm real.txt; exit 3\n",
            outputs=f"[ -e real.txt ] && echo '{json.dumps(outputs)}'\n",
        )
        spec = {"say": self._text}
        return DeclaredConfig(declared_kind="file", scripts=scripts, spec=spec, workdir=self.folder, **changes)

    def edit(self) -> None:
        self._text = "edited"

    def damage(self) -> None:
        self._file.write_text("wrong")

    def spoil(self) -> str:
        self._kept, self._apply = self._apply, "if true; then\n"
        return r"^apply\.sh: .*line 2: syntax error: unexpected end of file \(exit 2\)"

    def mend(self) -> None:
        self._apply = self._kept

    def hang(self) -> None:
        self._apply = _HANG.format(folder=self.folder)

    def tell_secret(self, *, and_fail: bool) -> DeclaredConfig:
        self._apply = f"echo $CANARY; echo $CANARY >&2; env; cat; exit {1 if and_fail else 3}"
        return self.config(env={"CANARY": CANARY}, inputs={"secret": CANARY})

    def state(self) -> object:
        return self._file.read_text() if self._file.exists() else None


KINDS: tuple[type[Kind], ...] = (Terraform, OpenTofu, Ansible, Declared)

_STAND_INS = {"tofu": "terraform"}

_HOW = {
    "terraform": "make terraform, or https://developer.hashicorp.com/terraform/install",
    "ansible-playbook": "pip install 'gitops-reconciler[ansible]'",
    "bash": "it is part of every system that we know",
}


def environment(kind: type[Kind], folder: Path) -> Mapping[str, str]:
    """What the tools of a kind start with; skips the test where its tool is not to be had."""
    tool = _STAND_INS.get(kind.tool, kind.tool)
    found = require(tool, _HOW[tool])
    tools = folder / "tools"
    tools.mkdir()
    (tools / kind.tool).symlink_to(found)
    settings = folder / "terraformrc"
    settings.write_text("")
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    return {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "TF_CLI_CONFIG_FILE": str(settings)}


def hide_tools(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """An environment in which no tool is found, neither on PATH nor beside us."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python3")
    return {"PATH": "/nonexistent", "HOME": "/nonexistent"}
