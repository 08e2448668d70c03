"""The contract of a webhook provider: `verify` says whether it sent these bytes, `read` says what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

RawBody = bytes | bytearray


class Headers:
    """Request headers that keep duplicates apart: what decides about trust must be there exactly once."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Take them as the server read them, names in lower case."""
        self._values: dict[bytes, list[bytes]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def all(self, name: bytes) -> list[str]:
        """Return every value of a header, in order."""
        return [value.decode("latin-1") for value in self._values.get(name, ())]

    def one(self, name: bytes) -> str | None:
        """Return the value of a header that is there exactly once and is not empty; else None."""
        values = self._values.get(name, ())
        return values[0].decode("latin-1") if len(values) == 1 and values[0] else None


class EventKind(StrEnum):
    """What a delivery is about, as far as we care."""

    PUSH = "push"
    PING = "ping"
    OTHER = "other"
    """Nothing that asks for a tick."""


class RefAction(StrEnum):
    """What happened to a ref."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChange:
    """One ref that moved.

    Which paths changed is not read: a run finds that out with git, from what was applied to the tip, and so truncated
    lists, force pushes and lost deliveries can't mislead it.
    """

    ref: str
    """In full, `refs/heads/…` or `refs/tags/…`; byte for byte as git compares it."""
    before: str
    after: str
    """A hint for people: what is applied is the tip that is fetched."""

    @property
    def action(self) -> RefAction:
        """What happened to the ref; an id of zeros stands for "not there"."""
        if not self.after.strip("0"):
            return RefAction.DELETE
        return RefAction.UPDATE if self.before.strip("0") else RefAction.CREATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What one delivery says, checked and typed."""

    kind: EventKind
    name: str
    """The provider's own word for it."""
    reason: str = ""
    """Why nothing follows from it; for `OTHER`."""
    changes: tuple[RefChange, ...] = ()
    urls: tuple[str, ...] = ()
    """Every address that the payload gives for the repository. They are compared, never fetched."""
    actor: str = ""
    """Who pushed."""


class MalformedError(Exception):
    """The body is not what this provider sends; the message is the short reason of a 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What may have signed a delivery, all of it valid at once, so that secrets can be rotated."""

    values: tuple[bytes, ...]


class Provider(Protocol):
    """One kind of forge. Stateless; the endpoint fixes which one it is, headers never do."""

    name: str
    """As in `/webhooks/<name>`, and the name of its secret file."""
    takes_forms: bool
    """Whether it may send `payload=…` as a form."""

    def verify(self, raw: RawBody, headers: Headers, secrets: Secrets) -> bool:
        """Whether one of the secrets vouches for these raw bytes; in constant time, trying all of them."""
        ...

    def delivery(self, headers: Headers) -> str | None:
        """Return the id by which the sender would deliver the same again; None where it has none."""
        ...

    def read(self, document: Mapping[str, Any], headers: Headers) -> Event:
        """Return what the delivery says. Raises `MalformedError`, and nothing else, whatever the document holds."""
        ...


Clock = Callable[[], float]
"""Seconds since 1970: what signed timestamps are compared with."""
