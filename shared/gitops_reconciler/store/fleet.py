"""What holds for the fleet as a whole: whether it is paused, which workers live, which pools nobody serves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gitops_reconciler import keys
from gitops_reconciler.redis_text import AnyRedis, as_text
from gitops_reconciler.store.redis import from_ms

SILENT_AFTER_MS = 20_000
"""A worker that was not heard of for so long (four signs of life) counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why no target is claimed."""

    reason: str
    advice: str
    """What to look at before resuming; empty for a pause by a person."""
    actor: str
    """The person, or the host that noticed."""
    at: datetime | None
    is_by_person: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPool:
    """A pool in which asks wait while no live worker serves it."""

    pool: str
    waiting: int
    since: datetime | None
    """When the oldest of these asks was made."""
    oldest: str
    """Its item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A worker that was heard of lately."""

    name: str
    pools: frozenset[str]
    slots: int
    busy: int


class FleetState:
    """Reads through one client (decode_responses=True)."""

    def __init__(self, client: AnyRedis) -> None:
        """Read through this client."""
        self._client = as_text(client)

    def pause(self) -> Pause | None:
        """Return why the fleet is paused; None when it is not."""
        text = self._client.get(keys.PAUSED)
        return None if text is None else _pause(text)

    def dead_pools(self) -> tuple[DeadPool, ...]:
        """Return the pools that were said to be dead, by name."""
        found = self._client.hgetall(keys.DEAD_POOLS)
        if not found:
            return ()
        names = sorted(found)
        counts = self._client.hmget(keys.QUEUED_IN, names)
        return tuple(_dead_pool(name, _object(found[name]), count) for name, count in zip(names, counts, strict=True))

    def workers(self) -> tuple[LiveWorker, ...]:
        """Return the workers that live, by name."""
        seconds, micros = self._client.time()
        oldest = seconds * 1000 + micros // 1000 - SILENT_AFTER_MS
        signs = {name: _object(text) for name, text in self._client.hgetall(keys.WORKERS).items()}
        return tuple(_worker(name, sign) for name, sign in sorted(signs.items()) if _whole(sign.get("at")) >= oldest)


def _pause(text: str) -> Pause:
    said = _object(text)
    return Pause(
        reason=str(said.get("reason", "")),
        advice=str(said.get("advice", "")),
        actor=str(said.get("actor", "")),
        at=from_ms(str(said.get("at", ""))),
        is_by_person=said.get("by") == "person",
    )


def _dead_pool(name: str, said: Mapping[str, Any], count: str | None) -> DeadPool:
    return DeadPool(
        pool=name, waiting=_whole(count), since=from_ms(str(said.get("since", ""))), oldest=str(said.get("oldest", ""))
    )


def _worker(name: str, sign: Mapping[str, Any]) -> LiveWorker:
    pools = sign.get("pools")
    served: Iterable[str] = map(str, pools) if isinstance(pools, list) else ()
    return LiveWorker(
        name=name, pools=frozenset(served), slots=_whole(sign.get("slots")), busy=_whole(sign.get("busy"))
    )


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0
