"""Which backend a config asks for: a table of names, so that nothing heavy is imported before it is needed."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel

from gitops_reconciler.backends.base import BackEnd, Builder, Tools
from gitops_reconciler.backends.local import local_tools
from gitops_reconciler.errors import NotBuiltError
from gitops_reconciler.models import (
    AnsibleConfig,
    CloudFormationConfig,
    ComposeConfig,
    DeclaredConfig,
    OpenTofuConfig,
    PiConfig,
    PulumiConfig,
    TerraformConfig,
)

GROUP = "gitops_reconciler.backends"
"""Entry points `kind = package.module:Class`; the class has `config_type`, and is called with (config, tools)."""

_BUILT = {
    "terraform": "gitops_reconciler.backends.terraform:TerraformBackend",
    "opentofu": "gitops_reconciler.backends.terraform:OpenTofuBackend",
    "ansible": "gitops_reconciler.backends.ansible:AnsibleBackend",
    "declared": "gitops_reconciler.backends.declared:DeclaredBackend",
}
_CONFIGS: dict[str, type[BaseModel]] = {
    "terraform": TerraformConfig,
    "opentofu": OpenTofuConfig,
    "pulumi": PulumiConfig,
    "cloudformation": CloudFormationConfig,
    "compose": ComposeConfig,
    "ansible": AnsibleConfig,
    "pi": PiConfig,
    "declared": DeclaredConfig,
}
KINDS = tuple(_BUILT)
"""The kinds that this version brings along."""


def build_backend(config: Any, tools: Tools | None = None) -> BackEnd:
    """Return the backend of a config, with everything bound that it needs; without tools, local ones.

    Raises:
        TypeError: no backend is registered for this type of config.
        NotBuiltError: the kind is known, and this version has no backend for it.

    """
    return _builder_of(config)(config, tools or local_tools())


def config_type(kind: str) -> type[BaseModel]:
    """Return the config model of a kind, also of one that an installed package brings.

    Raises:
        KeyError: there is no such kind.

    """
    if kind in _CONFIGS:
        return _CONFIGS[kind]
    found: type[BaseModel] = _entry_point(kind).load().config_type
    return found


def known_kinds() -> tuple[str, ...]:
    """Return all kinds that a backend can be built for, those of installed packages included."""
    return (*KINDS, *sorted(point.name for point in entry_points(group=GROUP) if point.name not in _CONFIGS))


def warm_up() -> None:
    """Load the backends before processes are forked that will need one of them."""
    for place in _BUILT.values():
        import_module(place.partition(":")[0])


def _builder_of(config: object) -> Builder:
    kind = str(getattr(config, "kind", ""))
    if kind in _CONFIGS and isinstance(config, _CONFIGS[kind]):
        if kind not in _BUILT:
            raise NotBuiltError(f"kind '{kind}' is not built in this version (there are: {', '.join(known_kinds())})")
        module, _, name = _BUILT[kind].partition(":")
        built: Builder = getattr(import_module(module), name)
        return built
    try:
        installed: Builder = _entry_point(kind).load()
    except KeyError:
        message = f"no backend registered for {type(config).__name__} (there are: {', '.join(known_kinds())})"
        raise TypeError(message) from None
    return installed


def _entry_point(kind: str) -> EntryPoint:
    return entry_points(group=GROUP)[kind]
