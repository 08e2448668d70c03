"""What lies on disk around a Terraform root module: whether it is initialised, where its state is, which workspace."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.errors import SpecError

_MARKER = "gitops-init"
_PATTERNS = ("*.tf", "*.tf.json", "*.tofu", "*.tofu.json", ".terraform.lock.hcl")
_OWN_WORKSPACES = frozenset({"cloud", "remote"})
"""Backends that name their workspaces in the module itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One root module with what its target binds to it."""

    workdir: Path
    data_dir: Path
    """`.terraform`, unless TF_DATA_DIR says otherwise."""
    state_dir: Path | None
    workspace: str
    backend_config: Mapping[str, str]
    binary: str

    @property
    def is_initialised(self) -> bool:
        """Whether an init of exactly these files, settings and this tool has ended well."""
        try:
            return (self.data_dir / _MARKER).read_text(encoding="utf-8") == self._digest()
        except (OSError, UnicodeDecodeError):
            return False

    def mark_initialised(self) -> None:
        """Remember that an init ended well; after it, because it may have written the lock file."""
        self.data_dir.mkdir(exist_ok=True)
        (self.data_dir / _MARKER).write_text(self._digest(), encoding="utf-8")

    def forget_init(self) -> None:
        """Have the next command initialise again."""
        (self.data_dir / _MARKER).unlink(missing_ok=True)

    def _digest(self) -> str:
        digest = hashlib.sha256(json.dumps([self.binary, dict(self.backend_config)], sort_keys=True).encode())
        for path in sorted({path for pattern in _PATTERNS for path in self.workdir.glob(pattern)}):
            if path.is_file():
                digest.update(b"\0" + path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    @property
    def backend(self) -> str | None:
        """Return the type of the backend that the last init configured; None: local state by default."""
        kind = self.configured_backend.get("type")
        return str(kind) if kind else None

    @property
    def configured_backend(self) -> Mapping[str, object]:
        """Return `type` and `config` of that backend, credentials included; empty: local state by default."""
        backend = _json(self.data_dir / "terraform.tfstate").get("backend")
        return backend if isinstance(backend, dict) else {}

    def workspace_variable(self) -> dict[str, str]:
        """Return how a command (but not init) is told its workspace: it is made by its first apply.

        By variable and not by `workspace select`, which is a process of its own and is remembered for others.
        """
        return {"TF_WORKSPACE": self.workspace} if self.workspace != "default" else self.workspace_variable_of_init()

    def workspace_variable_of_init(self) -> dict[str, str]:
        """Return how init is told its workspace: the one that always exists, since it refuses one that is not there."""
        if self._selected in {"", "default"} or self.backend in _OWN_WORKSPACES:
            return {}
        return {"TF_WORKSPACE": "default"}

    @property
    def _selected(self) -> str:
        """The workspace that somebody selected by hand in this folder."""
        try:
            return (self.data_dir / "environment").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def state_flag(self) -> list[str]:
        """Return `-state=…` where state is local by default and is kept outside the checkout.

        State that already lies beside the module is taken along once.

        Raises:
            SpecError: the module got a backend, and the state kept here was not moved to it.

        """
        state = self.state_file
        if state is None:
            return []
        if self.backend is not None:
            self._refuse_forgotten_state(state)
            return []
        state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not state.exists() and self._state_beside_module.is_file():
            shutil.copy2(self._state_beside_module, state)
        return [f"-state={state}"]

    @property
    def state_file(self) -> Path | None:
        """Where default local state is kept; None: beside the module, as Terraform does by itself."""
        return None if self.state_dir is None else self.state_dir.absolute() / f"{self.workspace}.tfstate"

    @property
    def _state_beside_module(self) -> Path:
        if self.workspace == "default":
            return self.workdir / "terraform.tfstate"
        return self.workdir / "terraform.tfstate.d" / self.workspace / "terraform.tfstate"

    def _refuse_forgotten_state(self, state: Path) -> None:
        kept = _json(state)
        if kept.get("resources") or kept.get("encrypted_data"):
            raise SpecError(
                f"the module in '{self.workdir}' has a '{self.backend}' backend now, but its state is still in "
                f"'{state}': everything would be made a second time; move the state once "
                f"(`{self.binary} state push {state}` in that folder), then remove the file"
            )


def _json(path: Path) -> dict[str, object]:
    """Return the object in a file; empty when there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def variables(values: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    """Return `TF_VAR_*`: text as it is, anything else as JSON, which is valid HCL; null leaves the default."""
    for name, value in values.items():
        if value is not None:
            yield f"TF_VAR_{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
