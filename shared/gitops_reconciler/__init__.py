"""The library: targets, backends and one tick, without Celery and FastAPI.

Everything public is here, and is imported when it is first asked for, so that `import gitops_reconciler` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitops_reconciler.backends.base import Tools
    from gitops_reconciler.backends.registry import build_backend
    from gitops_reconciler.errors import GitopsError, ReconcileError, StalledError, UnreachableError, WaitingError
    from gitops_reconciler.locks.flock import backend_lock
    from gitops_reconciler.manifests.binding import bind
    from gitops_reconciler.models import (
        AnsibleConfig,
        ApplyResult,
        BackEnd,
        BackendConfig,
        ChangeCounts,
        CloudFormationConfig,
        ComposeConfig,
        DeclaredConfig,
        DetectsDrift,
        DriftReport,
        ManagedTarget,
        OpenTofuConfig,
        PiConfig,
        PulumiConfig,
        Scripts,
        Status,
        TerraformConfig,
    )
    from gitops_reconciler.outcomes import Outcome
    from gitops_reconciler.reconcile import run, tick
    from gitops_reconciler.store.files import last_recorded_sha, record_last_sha

__all__ = [
    "AnsibleConfig",
    "ApplyResult",
    "BackEnd",
    "BackendConfig",
    "ChangeCounts",
    "CloudFormationConfig",
    "ComposeConfig",
    "DeclaredConfig",
    "DetectsDrift",
    "DriftReport",
    "GitopsError",
    "ManagedTarget",
    "OpenTofuConfig",
    "Outcome",
    "PiConfig",
    "PulumiConfig",
    "ReconcileError",
    "Scripts",
    "StalledError",
    "Status",
    "TerraformConfig",
    "Tools",
    "UnreachableError",
    "WaitingError",
    "backend_lock",
    "bind",
    "build_backend",
    "last_recorded_sha",
    "record_last_sha",
    "run",
    "tick",
]

_ELSEWHERE = {
    "GitopsError": "errors",
    "Outcome": "outcomes",
    "ReconcileError": "errors",
    "StalledError": "errors",
    "Tools": "backends.base",
    "UnreachableError": "errors",
    "WaitingError": "errors",
    "backend_lock": "locks.flock",
    "bind": "manifests.binding",
    "build_backend": "backends.registry",
    "last_recorded_sha": "store.files",
    "record_last_sha": "store.files",
    "run": "reconcile",
    "tick": "reconcile",
}
"""Which module has a public name; all others are in `models`."""

if not TYPE_CHECKING:  # a type checker sees the imports above, and must not take every name for one

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'models')}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """Return the public names, whether they were imported yet or not."""
        return sorted({*globals(), *__all__})
