"""The contract of the lock of (kind, target): held by one run, freed by its end or its death, never waited for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lock that we hold. The token rises with each holder, so that a late writer can be told apart."""

    kind: str
    target: str
    token: int


class Locks(Protocol):
    """Mutual exclusion of ticks, by (kind, target)."""

    def hold(self, kind: str, target: str) -> AbstractContextManager[Held | None]:
        """Take the lock at once or give None; never wait. An error raised inside the body surfaces as itself."""
        ...
