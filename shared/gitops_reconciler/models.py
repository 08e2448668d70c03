"""The frozen public models: results, backend configs (one per kind, no shared struct), and the managed target."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, field_validator

NAME_PATTERN = r"^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]

DRY_RUN_WOULD_CHANGE = "dry-run: would change"
"""How the message of a dry run begins that found something to do: such a run confirms nothing."""

_log = logging.getLogger("gitops_reconciler")


class ApplyResult(StrEnum):
    """What an apply or a destroy came to; never widened."""

    NO_CHANGE = "no_change"
    CHANGED = "changed"
    FAILED = "failed"


class ChangeCounts(BaseModel):
    """How many things a run added, changed and removed, as the engine itself counted them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    added: int = 0
    changed: int = 0
    removed: int = 0

    def __str__(self) -> str:
        """Return the short form of tables and messages: `+1 ~2 -0`."""
        return f"+{self.added} ~{self.changed} -{self.removed}"


class Status(BaseModel):
    """What a backend answers; immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    result: ApplyResult
    message: str = ""
    counts: ChangeCounts | None = None


@runtime_checkable
class BackEnd(Protocol):
    """What can be kept converged. All that a backend needs is bound when it is built: no method takes an argument."""

    def apply(self) -> Status:
        """Make the real thing equal to its declaration, and say whether anything had to change."""
        ...

    def destroy(self) -> Status:
        """Tear the whole target down; destroying nothing is `no_change`."""
        ...

    def get_outputs(self) -> dict[str, Any]:
        """Return what the target offers to people and to other targets; `{}` when it is not there."""
        ...


class DriftReport(BaseModel):
    """What `detect_drift` saw; it never changes anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    drifted: bool | None
    """None: it could not be told; unknown is never success."""
    message: str = ""
    changes: tuple[str, ...] = ()


@runtime_checkable
class DetectsDrift(Protocol):
    """The optional second protocol, for backends that can look without touching."""

    def detect_drift(self) -> DriftReport:
        """Compare the live thing with its declaration, and mutate nothing."""
        ...


class _Config(BaseModel):
    """Frozen, and no field that the kind does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TerraformConfig(_Config):
    """A Terraform root module. Paths are absolute, or relative to the process' folder in library use."""

    kind: Literal["terraform"] = "terraform"
    workdir: Path
    var_file: Path | None = None
    workspace: str = "default"
    backend_config: Mapping[str, str] = Field(default_factory=dict)
    """Each entry becomes `-backend-config=key=value` at init."""
    variables: Mapping[str, Any] = Field(default_factory=dict)
    """Each entry becomes `TF_VAR_<name>` (JSON for what is not a string)."""
    env: Mapping[str, str] = Field(default_factory=dict)
    dry_run: bool = False
    max_removals: int | None = Field(default=None, ge=0)
    """More destroyed or replaced resources than this are refused before anything is changed."""
    lock_timeout_seconds: int = Field(default=60, ge=0)
    state_dir: Path | None = None
    """Where local state is kept when the module configures no backend; None: beside the module, as Terraform does."""
    binary: str = "terraform"


class OpenTofuConfig(_Config):
    """The same as Terraform, run by `tofu`."""

    kind: Literal["opentofu"] = "opentofu"
    workdir: Path
    var_file: Path | None = None
    workspace: str = "default"
    backend_config: Mapping[str, str] = Field(default_factory=dict)
    variables: Mapping[str, Any] = Field(default_factory=dict)
    env: Mapping[str, str] = Field(default_factory=dict)
    dry_run: bool = False
    max_removals: int | None = Field(default=None, ge=0)
    lock_timeout_seconds: int = Field(default=60, ge=0)
    state_dir: Path | None = None
    binary: str = "tofu"


class PulumiConfig(_Config):
    """A Pulumi program and its stack."""

    kind: Literal["pulumi"] = "pulumi"
    project_dir: Path
    stack: str
    backend_url: str | None = None


class CloudFormationConfig(_Config):
    """One CloudFormation stack; with `account` set, nothing is touched in any other account."""

    kind: Literal["cloudformation"] = "cloudformation"
    stack_name: str
    template_path: Path
    region: str
    parameters: Mapping[str, str] = Field(default_factory=dict)
    account: str | None = Field(default=None, pattern=r"^[0-9]{12}$")


class ComposeConfig(_Config):
    """One Compose project on a host; `""` or `"local"` is this host."""

    kind: Literal["compose"] = "compose"
    compose_file: Path
    host: str = ""
    project_name: str | None = None


class AnsibleConfig(_Config):
    """A playbook and its inventory."""

    kind: Literal["ansible"] = "ansible"
    playbook: Path
    inventory: Path | str
    """A file or directory, or inline: a string that ends in a comma (`"host1,host2,"`)."""
    extra_vars: Mapping[str, Any] = Field(default_factory=dict)
    env: Mapping[str, str] = Field(default_factory=dict)
    limit: str | None = None
    destroy_playbook: Path | None = None
    dry_run: bool = False


class PiConfig(_Config):
    """A folder on a small device, and the command that makes it live."""

    kind: Literal["pi"] = "pi"
    host: str
    repo_path: Path
    apply_command: tuple[str, ...] = ("docker", "compose", "up", "-d")


class Scripts(_Config):
    """The bash scripts of a declared kind: exit 0 no change, 3 changed, anything else failed."""

    apply: str
    destroy: str | None = None
    outputs: str | None = None


class DeclaredConfig(_Config):
    """A kind that the user declared by a `manifest`, with the spec and inputs of one target."""

    kind: Literal["declared"] = "declared"
    declared_kind: Name
    scripts: Scripts
    spec: Mapping[str, Any] = Field(default_factory=dict)
    inputs: Mapping[str, Any] = Field(default_factory=dict)
    env: Mapping[str, str] = Field(default_factory=dict)
    workdir: Path
    timeout_seconds: float = Field(default=60.0, gt=0)


BackendConfig = Annotated[
    TerraformConfig
    | OpenTofuConfig
    | PulumiConfig
    | CloudFormationConfig
    | ComposeConfig
    | AnsibleConfig
    | PiConfig
    | DeclaredConfig,
    Field(discriminator="kind"),
]

Notifier = Callable[[str, Status], None]


def default_notifier(name: str, status: Status) -> None:
    """Log one ERROR with the target's name and the message."""
    _log.error("target failed: %s: %s", name, status.message)


class ManagedTarget(BaseModel):
    """One thing to keep converged, at run time. The name is unique in the fleet: it keys lock, record and history."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    name: Name
    backend: BackEnd
    repo: Path
    notify: Notifier = default_notifier
    branch: str = "main"
    sync: bool = True
    """False: the folder is applied as it lies there, without git."""

    @field_validator("backend", mode="before")
    @classmethod
    def _has_the_three_methods(cls, backend: object) -> object:
        missing = [name for name in ("apply", "destroy", "get_outputs") if not callable(getattr(backend, name, None))]
        if missing:
            message = (
                f"a backend has the methods apply, destroy, get_outputs; "
                f"{type(backend).__name__} lacks {', '.join(missing)}"
            )
            raise ValueError(message)
        return backend
