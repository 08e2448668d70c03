"""The specs of the kinds that are built in: what a document may say; where things lie on this host is not its business.

Workdir (`path`), environment (`config.env` of the providerconfig) and the folder for local state are set by `bind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field

from gitops_reconciler.manifests.fields import (
    RelativePath,
    SettingText,
    Span,
    Switch,
    Text,
    VariableName,
    one_line,
    relative_path,
)
from gitops_reconciler.manifests.written import Written


def is_inline_inventory(text: str) -> bool:
    """Whether an inventory is a list of hosts, and no path."""
    return text.endswith(",")


def _inventory(text: str) -> str:
    return one_line(text) if is_inline_inventory(text) else relative_path(text)


class Spec(Written):
    """What a kind lets a document say."""

    SECRET_FIELDS: ClassVar[frozenset[str]] = frozenset()
    """Fields below which secret references are resolved."""
    PATH_FIELDS: ClassVar[frozenset[str]] = frozenset()
    """Paths relative to the document's `path`; none may leave the repository."""


class TerraformSpec(Spec):
    """A root module, for Terraform and OpenTofu alike."""

    SECRET_FIELDS = frozenset({"variables", "backend_config"})
    PATH_FIELDS = frozenset({"var_file"})

    workspace: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.~-]{0,127}$")] = "default"
    var_file: RelativePath | None = None
    variables: dict[VariableName, Any] = Field(default_factory=dict)
    backend_config: dict[VariableName, SettingText] = Field(default_factory=dict)
    dry_run: Switch = False
    max_removals: int | None = Field(default=None, ge=0)
    """More destroyed or replaced resources than this are refused before anything is changed."""
    lock_timeout: Span = timedelta(seconds=60)


class AnsibleSpec(Spec):
    """A playbook and its inventory."""

    SECRET_FIELDS = frozenset({"extra_vars"})
    PATH_FIELDS = frozenset({"playbook", "inventory", "destroy_playbook"})

    playbook: RelativePath
    inventory: Annotated[str, AfterValidator(_inventory)]
    """A file or folder, or inline when it ends in a comma: `"web1,web2,"`."""
    extra_vars: dict[str, Any] = Field(default_factory=dict)
    limit: Text | None = None
    destroy_playbook: RelativePath | None = None
    dry_run: Switch = False


SPECS: Final[Mapping[str, type[Spec]]] = {
    "ansible": AnsibleSpec,
    "opentofu": TerraformSpec,
    "terraform": TerraformSpec,
}
"""The kinds that are built."""

KINDS_NOT_BUILT: Final = frozenset({"cloudformation", "compose", "pi", "pulumi", "resources"})
RESERVED_KINDS: Final = frozenset({*SPECS, *KINDS_NOT_BUILT, "declared", "source"})
"""Names that no manifest may declare."""

RESERVED_POOLS: Final = frozenset({"source", "notify"})
"""Queues of our own work: a target there would run with credentials that are not meant for it."""


def merged(config: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a providerconfig overridden by a spec: maps one by one, everything else as a whole."""
    result = dict(config)
    for key, value in spec.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result
