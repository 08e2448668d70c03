"""What readers and the fleet's parts see of Redis; ends of runs are written by the protocol's scripts alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any
from uuid import uuid4

from gitops_reconciler import keys
from gitops_reconciler.errors import UnknownTargetError
from gitops_reconciler.layout import DEFAULT_SOURCE
from gitops_reconciler.redis_text import AnyRedis, as_text
from gitops_reconciler.store.base import Applied, Attempt

_BATCH = 500
_RUN_COLUMNS = (
    *("run", "item", "kind", "pool", "state", "reason", "message", "revision", "subject", "counts", "tools", "causes"),
    *("generation", "holder", "started_at", "ended_at", "waited_ms", "exit", "interrupted", "document_hash"),
)
_EVENTS_OF_A_RUN = 4  # at most: changed, failed or recovered, ended; and one to spare


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemView:
    """One target or source as stored: protocol fields, status and registration, typed where it matters."""

    item: str
    kind: str
    pool: str
    status: str
    """A `TargetStatus`: suspended and stale win over what the last run said."""
    reason: str
    message: str
    revision: str
    applied_revision: str
    last_run: str
    requested: int
    observed: int
    due_at: datetime | None
    fields: dict[str, str] = field(default_factory=dict)
    """Everything else of the hash: source, document, document_hash, path, labels, stale, suspended_by, holder …"""

    def time(self, name: str) -> datetime | None:
        """Return a field that holds epoch milliseconds."""
        return from_ms(self.fields.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run as recorded."""

    run: str
    item: str
    state: str
    fields: dict[str, str] = field(default_factory=dict)

    def time(self, name: str) -> datetime | None:
        """Return a field that holds epoch milliseconds."""
        return from_ms(self.fields.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One entry of the event stream."""

    id: str
    event: str
    item: str
    at: datetime | None
    fields: dict[str, str] = field(default_factory=dict)


def from_ms(text: str | None) -> datetime | None:
    """Return epoch milliseconds as a time in UTC; None stays None."""
    return None if not text else datetime.fromtimestamp(float(text) / 1000, UTC)


class RedisStore:
    """Reads of targets, sources, runs and events; registrations; markers. Client with decode_responses=True."""

    def __init__(self, client: AnyRedis) -> None:
        """Read through this client."""
        self._client = as_text(client)

    # --- targets and sources -------------------------------------------------------------------------------------

    def item(self, name: str) -> ItemView | None:
        """Return one target (`source/name`) or source item (`source:name`)."""
        fields = self._client.hgetall(keys.item(name))
        if not fields.get("kind"):
            return None
        return _item_view(name, fields, self._client.zscore(keys.DUE, name))

    def names(self) -> list[str]:
        """Return the names of all targets, in order."""
        return [name for name in self._client.zrange(keys.ITEMS, 0, -1) if not name.startswith(keys.SOURCE_PREFIX)]

    def items(self, names: Iterable[str]) -> Iterator[ItemView]:
        """Return the views of these items, in batches of one round trip."""
        todo = list(names)
        for start in range(0, len(todo), _BATCH):
            batch = todo[start : start + _BATCH]
            with self._client.pipeline(transaction=False) as pipe:
                for name in batch:
                    pipe.hgetall(keys.item(name))
                pipe.zmscore(keys.DUE, batch)
                *hashes, due = pipe.execute()
            for name, fields, score in zip(batch, hashes, due, strict=True):
                if fields.get("kind"):
                    yield _item_view(name, fields, score)

    def targets(self) -> Iterator[ItemView]:
        """Return all targets in the order of their names."""
        return self.items(self.names())

    def targets_of(self, source: str) -> Iterator[ItemView]:
        """Return the targets of one source in the order of their names."""
        after_slash = chr(ord("/") + 1)
        return self.items(self._client.zrangebylex(keys.ITEMS, f"[{source}/", f"({source}{after_slash}"))

    def note_revision(self, run_id: str, revision: str) -> None:
        """Write down which revision a run is about to apply, so that it is known should the run be lost."""
        if self._client.hexists(keys.run(run_id), "run"):
            self._client.hset(keys.run(run_id), "revision", revision)

    def resolve(self, name: str) -> str:
        """Return the full id of a target named in short (`web`) or in full (`default/web`).

        Raises:
            UnknownTargetError: no such target, or several sources have one; offers close names.

        """
        if self._client.hexists(keys.item(name), "kind"):
            return name
        if self._client.hexists(keys.item(f"{DEFAULT_SOURCE}/{name}"), "kind"):
            return f"{DEFAULT_SOURCE}/{name}"
        names = self.names()
        found = [known for known in names if known.partition("/")[2] == name]
        if len(found) == 1:
            return found[0]
        if found:
            message = f"target name '{name}' is ambiguous (one of: {', '.join(found)})"
            raise UnknownTargetError(message)
        short = {known.partition("/")[2] for known in names}
        close = get_close_matches(name, [*short, *names], n=3)
        hint = f"did you mean: {', '.join(close)}?" if close else f"{len(names)} targets are known"
        message = f"unknown target '{name}' ({hint})"
        raise UnknownTargetError(message)

    def applied(self, target: str) -> Applied | None:
        """Return what was applied last."""
        view = self.item(target)
        if view is None or not view.applied_revision:
            return None
        return Applied(
            sha=view.applied_revision,
            result=view.fields.get("applied_result", ""),
            message=view.fields.get("applied_message", ""),
            at=view.time("applied_at"),
        )

    def last_attempt(self, target: str) -> Attempt | None:
        """Return the last run that ended."""
        view = self.item(target)
        if view is None or not view.last_run:
            return None
        return Attempt(
            state=view.fields.get("last_run_state", ""),
            reason=view.reason,
            message=view.message,
            revision=view.revision,
            at=view.time("last_run_at"),
        )

    def marker(self, target: str) -> str | None:
        """Return the target's marker."""
        value = self._client.get(keys.marker(target))
        return None if value is None else str(value)

    def set_marker(self, target: str, value: str | None) -> None:
        """Keep the target's marker; None forgets it."""
        if value is None:
            self._client.delete(keys.marker(target))
        else:
            self._client.set(keys.marker(target), value)

    def queued(self) -> list[str]:
        """Return the items for which a message is under way, in the order of their asks."""
        return self._client.zrange(keys.QUEUED, 0, -1)

    # --- runs and events -----------------------------------------------------------------------------------------

    def run(self, run_id: str) -> RunView | None:
        """Return one run."""
        fields = self._client.hgetall(keys.run(run_id))
        return _run_view(fields) if fields.get("run") else None

    def runs(self, item: str, *, limit: int = 20) -> list[RunView]:
        """Return the latest runs of an item, newest first."""
        return self.runs_of(self._client.zrevrange(keys.runs(item), 0, limit - 1))

    def latest_runs(self, *, limit: int = 20) -> list[RunView]:
        """Return the latest runs of all items, newest first: those that go on now, then those that ended."""
        running = self.items(self._client.zrevrange(keys.LEASES, 0, limit - 1))
        ids = [view.fields.get("run", "") for view in running]
        for _, fields in self._client.xrevrange(keys.EVENTS, count=limit * _EVENTS_OF_A_RUN):
            if fields.get("event") in {"ended", "lost"}:
                ids.append(fields.get("run", ""))
        return self.runs_of(list(dict.fromkeys(run_id for run_id in ids if run_id))[:limit])

    def runs_of(self, ids: Sequence[str]) -> list[RunView]:
        """Return these runs in that order, without their logs, and without those that are not kept any more."""
        with self._client.pipeline(transaction=False) as pipe:
            for run_id in ids:
                pipe.hmget(keys.run(run_id), _RUN_COLUMNS)
            rows = pipe.execute()
        found = ({name: text for name, text in zip(_RUN_COLUMNS, row, strict=True) if text is not None} for row in rows)
        return [_run_view(fields) for fields in found if fields.get("run")]

    def events(self, *, after: str = "-", limit: int = 100) -> list[EventView]:
        """Return events after an id, oldest first; `-` begins at the oldest that is kept."""
        start = "-" if after == "-" else f"({after}"
        return [event_view(entry, fields) for entry, fields in self._client.xrange(keys.EVENTS, start, count=limit)]

    def asked(self, repository: str) -> tuple[str, int]:
        """Return (epoch, how often this repository was asked for until now)."""
        return self.epoch(), int(self._client.hget(keys.ASKS, repository) or 0)

    # --- sources, trees, tokens, epoch ---------------------------------------------------------------------------

    def sources(self) -> dict[str, dict[str, Any]]:
        """Return the registrations of all sources, by name."""
        return {name: json.loads(text) for name, text in sorted(self._client.hgetall(keys.SOURCES).items())}

    def put_source(self, name: str, registration: dict[str, Any]) -> None:
        """Keep the registration of a source."""
        self._client.hset(keys.SOURCES, name, json.dumps(registration, sort_keys=True))

    def drop_source(self, name: str) -> bool:
        """Drop a registration; the source's targets stay, with the documents that they share."""
        return bool(self._client.hdel(keys.SOURCES, name))

    def tree_documents(self, source: str) -> dict[str, dict[str, Any]]:
        """Return a source's manifests and providerconfigs: `type/kind/name` -> document."""
        return {name: json.loads(text) for name, text in self._client.hgetall(keys.tree(source)).items()}

    def epoch(self) -> str:
        """Return the id of this store's history; made by whoever asks first."""
        found = self._client.get(keys.EPOCH)
        if found is None:  # written only where it is missing: a full store takes no writes
            self._client.set(keys.EPOCH, uuid4().hex, nx=True)
            found = self._client.get(keys.EPOCH)
        return str(found)

    def has_targets(self) -> bool:
        """Whether any target is known."""
        return self._client.zcard(keys.ITEMS) > self._client.hlen(keys.SOURCES)


def shown_status(fields: Mapping[str, str]) -> str:
    """Return the status that people see: stale and suspended win over what the last run said."""
    if "stale" in fields and fields.get("desired", "present") == "present":
        return "stale"
    return "suspended" if "suspended" in fields else fields.get("status", "pending")


def _item_view(name: str, fields: dict[str, str], due: float | None) -> ItemView:
    return ItemView(
        item=name,
        kind=fields["kind"],
        pool=fields.get("pool", ""),
        status=shown_status(fields),
        reason=fields.get("reason", ""),
        message=fields.get("message", ""),
        revision=fields.get("revision", ""),
        applied_revision=fields.get("applied_revision", ""),
        last_run=fields.get("last_run", ""),
        requested=int(fields.get("requested", "0")),
        observed=int(fields.get("observed", "0")),
        due_at=None if due is None else datetime.fromtimestamp(due / 1000, UTC),
        fields=fields,
    )


def _run_view(fields: dict[str, str]) -> RunView:
    return RunView(run=fields["run"], item=fields.get("item", ""), state=fields.get("state", ""), fields=fields)


def event_view(entry: str, fields: dict[str, str]) -> EventView:
    """Return an entry of the event stream, typed."""
    return EventView(
        id=entry,
        event=fields.get("event", ""),
        item=fields.get("item", ""),
        at=from_ms(fields.get("at")),
        fields=fields,
    )
