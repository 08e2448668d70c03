"""Sends alerts for what the events tell. One consumer group a channel, so that a broken one holds up no other.

A channel gets its alerts in order and at least once. What it does not take stays pending at the head of its group and
is tried again with backoff; the count of attempts and the waiting live in Redis, so any worker may go on with it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError, ResponseError

from gitops_reconciler import keys
from gitops_reconciler.errors import AlertRefusedError, DeliveryError, StoreUnavailableError
from gitops_reconciler.notify.base import Alert, Channel
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.redis_text import AnyRedis, TextRedis, as_text
from gitops_reconciler.store.fleet import FleetState

_log = logging.getLogger("gitops_workers")

ALERTING = frozenset({"failed", "unreachable", "stalled", "stale", "recovered"})
_OF_THE_FLEET = {"paused": "paused", "resumed": "paused", "pool_dead": "dead", "pool_alive": "dead"}
"""Events without a target -> what their alert and its recovery have in common."""
_CONSUMER = "notifier"  # one for all: whoever holds the channel's lock goes on where the last one stopped
_BATCH = 50
_LOCK_MS = 60_000  # more than one attempt takes
_BACKOFF_BASE_SECONDS, _BACKOFF_CAP_SECONDS = 10.0, 900.0
_ATTEMPTS, _ATTEMPTS_IF_REFUSED = 20, 3
_DEAD_LETTERS_KEPT = 1000
_UNREAD_MS = 5000

Fields = Mapping[str, str]


def alert_of(fields: Fields) -> Alert | None:
    """Return the alert of an event; None for events that nobody needs to be woken for."""
    event, target = fields.get("event", ""), fields.get("item", "")
    if event not in (ALERTING if target else _OF_THE_FLEET):
        return None
    return Alert(
        key=_key(event, target, fields),
        event=event,
        target=target,
        kind=fields.get("kind", ""),
        reason=fields.get("reason", ""),
        message=fields.get("message", ""),
        run=fields.get("run", ""),
        revision=fields.get("revision", ""),
        at=datetime.fromtimestamp(int(fields.get("at", "0")) / 1000, UTC),
    )


def _key(event: str, target: str, fields: Fields) -> str:
    """Return what a breakage and its recovery share. No target has a name with a space."""
    if target:
        return f"{target}:{'stale' if event == 'stale' else 'broken'}"
    about = f"the pool {fields['pool']}" if fields.get("pool") else "the fleet"
    return f"{about}:{_OF_THE_FLEET[event]}"


def backoff_seconds(attempts: int) -> float:
    """Return how long to wait after so many attempts that failed."""
    return min(_BACKOFF_CAP_SECONDS, _BACKOFF_BASE_SECONDS * 2.0 ** min(attempts - 1, 10))


class Notifier:
    """All channels of a worker. Safe to call from several threads and workers at once."""

    def __init__(self, client: AnyRedis, channels: Mapping[str, Channel]) -> None:
        """Read the events through this client (decode_responses=True)."""
        self._client = text = as_text(client)
        self._is_winding_down = threading.Event()
        self._queues = [
            ChannelQueue(client=text, name=name, channel=each, is_enough=self._is_winding_down.is_set)
            for name, each in channels.items()
        ]

    @property
    def channels(self) -> list[str]:
        """The names of the channels, which tell no secret."""
        return [queue.name for queue in self._queues]

    def begin(self) -> None:
        """Let channels that are new begin with what happens from now on, or with the pause that the fleet is in.

        A store that was emptied knows no channel; a beat may have said so before any worker was there to tell it.

        Raises:
            StoreUnavailableError: nothing was lost; the first `drain` begins then.

        """
        with _store_errors():
            pause = FleetState(self._client).pause()
            start = str(round(pause.at.timestamp() * 1000) - 1) if pause and pause.at else "$"
            for queue in self._queues:
                queue.create(start)

    def wind_down(self) -> None:
        """Send nothing more after the alert that is under way: what is left is still pending, for another worker."""
        self._is_winding_down.set()

    def drain(self) -> None:
        """Send what there is to send, all channels side by side.

        Raises:
            StoreUnavailableError: what was not sent is still pending.

        """
        if len(self._queues) == 1:
            self._queues[0].drain()
            return
        with ThreadPoolExecutor(len(self._queues), thread_name_prefix="notify") as threads:
            for done in [threads.submit(queue.drain) for queue in self._queues]:
                done.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelQueue:
    """One channel and its consumer group."""

    client: TextRedis
    name: str
    channel: Channel
    is_enough: Callable[[], bool] = lambda: False
    """Whether no more is to be sent now."""
    _owner: str = field(default_factory=lambda: uuid4().hex)

    @property
    def group(self) -> str:
        """The channel's consumer group."""
        return keys.notifier_group(self.name)

    def create(self, start: str) -> None:
        """Make the group where it does not exist: `$` begins with what comes, `0` with what is kept."""
        try:
            self.client.xgroup_create(keys.ALERTS, self.group, id=start, mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def drain(self) -> None:
        """Send until nothing is left or the channel fails; returns at once while somebody else does it."""
        with _store_errors():
            while not self.is_enough() and self._take():
                try:
                    works = self._send_all()
                except ResponseError as error:
                    if not str(error).startswith("NOGROUP"):
                        raise
                    self.create("0")  # the store was emptied: all that it knows by now is news
                    works = True
                finally:
                    self._release()
                if not works or not has_unread(self.client, self.group):
                    return

    def _take(self) -> bool:
        return bool(self.client.set(keys.notifier_lock(self.name), self._owner, nx=True, px=_LOCK_MS))

    def _release(self) -> None:
        with suppress(RedisError):  # it expires by itself
            if self.client.get(keys.notifier_lock(self.name)) == self._owner:
                self.client.delete(keys.notifier_lock(self.name))

    def _send_all(self) -> bool:
        """Return whether everything went out; what failed waits for its time, and what is behind it too."""
        works = False
        while head := _head(self.client, self.group):
            if not (works or head.is_due):
                return False
            claimed = self.client.xclaim(keys.ALERTS, self.group, _CONSUMER, 0, [head.id])
            fields: Fields = next((found for _, found in claimed if found), {})  # trimmed meanwhile: nothing to send
            works = self._send(head.id, fields, attempts=head.attempts + 1)
            if not works:
                return False
        while batch := self._read():
            for entry, fields in batch:
                if not self._send(entry, fields, attempts=1):
                    return False
        return True

    def _read(self) -> Sequence[tuple[str, Fields]]:
        answer: Any = self.client.xreadgroup(self.group, _CONSUMER, {keys.ALERTS: ">"}, count=_BATCH)
        if not answer:
            return []
        entries: Any = answer[keys.ALERTS] if isinstance(answer, dict) else answer[0][1]
        is_nested = bool(entries) and isinstance(entries[0][0], list | tuple)  # so in RESP3
        found: Sequence[tuple[str, Fields]] = entries[0] if is_nested else entries
        return found

    def _send(self, entry: str, fields: Fields, *, attempts: int) -> bool:
        """Send one entry; True when it needs no more attempt."""
        if self.is_enough():
            return False
        alert = alert_of(fields)
        if alert is not None:
            self.client.pexpire(keys.notifier_lock(self.name), _LOCK_MS)
            try:
                self.channel.send(alert)
            except DeliveryError as error:
                if attempts < (_ATTEMPTS_IF_REFUSED if isinstance(error, AlertRefusedError) else _ATTEMPTS):
                    again = {"channel": self.name, "attempts": attempts, "again_in": backoff_seconds(attempts)}
                    _log.warning("alert not delivered: %s", error, extra={"target": alert.target, **again})
                    return False
                self._bury(alert, error, attempts)
        self.client.xack(keys.ALERTS, self.group, entry)
        return True

    def _bury(self, alert: Alert, error: DeliveryError, attempts: int) -> None:
        letter: dict[str, str | int] = {
            "channel": self.name,
            "error": str(error),
            "attempts": attempts,
            "alert": json.dumps({name: str(getattr(alert, name)) for name in Alert.__dataclass_fields__}),
        }
        self.client.xadd(keys.DEAD_LETTERS, letter, maxlen=_DEAD_LETTERS_KEPT, approximate=True)
        _log.error("alert given up: %s", error, extra={"target": alert.target, **letter})


@dataclass(frozen=True, slots=True)
class _Head:
    """The oldest entry that a channel did not take."""

    id: str
    idle_ms: int
    attempts: int

    @property
    def is_due(self) -> bool:
        return self.idle_ms >= backoff_seconds(self.attempts) * 1000


def _head(client: TextRedis, group: str) -> _Head | None:
    pending = client.xpending_range(keys.ALERTS, group, "-", "+", 1)
    if not pending:
        return None
    oldest = pending[0]
    return _Head(oldest["message_id"], int(oldest["time_since_delivered"]), int(oldest["times_delivered"]))


def has_unread(client: TextRedis, group: str, *, older_than_ms: int = 0) -> bool:
    """Whether the group has entries before it that are older than that."""
    last = next((row["last-delivered-id"] for row in _groups(client) if row["name"] == group), None)
    if last is None:
        return False
    following = client.xrange(keys.ALERTS, min=f"({last}", count=1)
    if not following:
        return False
    seconds, micros = client.time()
    return int(following[0][0].partition("-")[0]) <= seconds * 1000 + micros // 1000 - older_than_ms


def needs_wake(client: TextRedis, channels: Iterable[str]) -> bool:
    """Whether a channel has something to send and no message, so it seems, that says so."""
    known = {row["name"] for row in _groups(client)}
    for group in map(keys.notifier_group, channels):
        if group not in known:
            continue
        head = _head(client, group)
        if head.is_due if head else has_unread(client, group, older_than_ms=_UNREAD_MS):
            return True
    return False


def _groups(client: TextRedis) -> list[dict[str, Any]]:
    if not client.exists(keys.ALERTS):
        return []
    return list(client.xinfo_groups(keys.ALERTS))


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        message = f"redis did not serve the notifier: {trouble(error)}"
        raise StoreUnavailableError(message) from error
