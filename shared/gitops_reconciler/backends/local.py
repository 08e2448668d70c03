"""How a backend gets what is bound to it: a config or its fields, and tools, which are local where none are given."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from gitops_reconciler.backends.base import Tools
from gitops_reconciler.clock import Deadline, SystemClock
from gitops_reconciler.processes import SubprocessRunner
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.secrets import ReferencedSecrets
from gitops_reconciler.settings import load_settings

_log = logging.getLogger("gitops_reconciler.run")
_OURS = ("GITOPS_", "GRID_")  # our own settings, tokens and secrets are none of a tool's business

Config = TypeVar("Config", bound=BaseModel)


def config_of(config_type: type[Config], config: Config | None, fields: Mapping[str, Any]) -> Config:
    """Return the config that was given, or make it of its fields.

    Raises:
        TypeError: both were given.

    """
    if config is None:
        return config_type(**fields)
    if fields:
        raise TypeError(f"give a {config_type.__name__} or its fields, not both (got also {', '.join(sorted(fields))})")
    return config


def local_tools() -> Tools:
    """Return the tools of library use: this process' environment without our own settings, no deadline."""
    redactor = Redactor()
    settings = load_settings()
    return Tools(
        runner=SubprocessRunner(redactor=redactor),
        clock=SystemClock(),
        env={name: value for name, value in os.environ.items() if not name.startswith(_OURS)},
        log=_LoggingLog(),
        marker=_MemoryMarker(),
        secrets=ReferencedSecrets(folder=settings.secrets_dir, environ=os.environ, redactor=redactor),
        deadline=Deadline(),
        engine_locks=settings.layout.engine_locks,
    )


class _LoggingLog:
    """The log of a run as debug lines of the standard logger."""

    def line(self, text: str) -> None:
        _log.debug("%s", text)

    def phase(self, name: str) -> None:
        _log.debug("phase", extra={"phase": name})

    def tool(self, name: str, version: str) -> None:
        _log.debug("tool", extra={"tool": name, "version": version})


@dataclass(slots=True)
class _MemoryMarker:
    _value: str | None = None

    def get(self) -> str | None:
        return self._value

    def set(self, value: str | None) -> None:
        self._value = value
