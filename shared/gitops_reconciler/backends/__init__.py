"""One module per kind of backend, behind one contract; the classes are here as well, imported when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitops_reconciler.backends.ansible import AnsibleBackend
    from gitops_reconciler.backends.declared import DeclaredBackend
    from gitops_reconciler.backends.terraform import OpenTofuBackend, TerraformBackend

__all__ = ["AnsibleBackend", "DeclaredBackend", "OpenTofuBackend", "TerraformBackend"]

_MODULES = {
    "AnsibleBackend": "ansible",
    "DeclaredBackend": "declared",
    "OpenTofuBackend": "terraform",
    "TerraformBackend": "terraform",
}

if not TYPE_CHECKING:  # a type checker sees the imports above, and must not take every name for one

    def __getattr__(name: str) -> object:
        """Import a backend's class when it is first asked for (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
