"""What the API answers, typed: targets, runs, sources and events as people and programs see them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gitops_reconciler import keys
from gitops_reconciler.redaction import redact_url
from gitops_reconciler.store.fleet import FleetState
from gitops_reconciler.store.redis import EventView, ItemView, RedisStore, RunView


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class CauseView(_View):
    """Who asked, and why."""

    trigger: str = Field(description="schedule, webhook, manual, dependency, source, retry or drift")
    actor: str = Field(description="Who or what: a person at a forge, a token's name, another item")


class CountsView(_View):
    """How many things a run added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0


class RunBrief(_View):
    """One run, without its log."""

    run: str = Field(description="Id, 32 hex digits")
    target: str = Field(description="Full name of the target, or `source:<name>` for the sync of a source")
    kind: str
    pool: str
    state: str = Field(description="running, no_change, changed, failed, skipped, aborted, lost or unreachable")
    reason: str = Field(description="Why it ended so: one word of a closed list")
    message: str
    revision: str = Field(description="Full SHA that was fetched and, unless it failed, applied")
    subject: str = Field(description="First line of that commit's message")
    counts: CountsView | None
    causes: list[CauseView] = Field(description="All that asked for this run since the one before, oldest first")
    generation: int = Field(description="The target's `observed` once this run has ended")
    started_at: datetime | None
    ended_at: datetime | None
    seconds: float | None = Field(description="How long it took; null while it goes on")
    waited_seconds: float | None = Field(description="Between the ask and the start")
    holder: str = Field(description="The worker that ran it")


class RunFull(RunBrief):
    """One run with everything that is kept of it."""

    tools: dict[str, str] = Field(description="Name and version of the tools that took part")
    log: str = Field(description="The log, or its end where it is long; grows while the run goes on")
    record: dict[str, str] = Field(description="Whatever else was recorded")


class TargetView(_View):
    """One target as it stands."""

    name: str = Field(description="Full name, `source/name`")
    source: str
    kind: str
    pool: str
    status: str = Field(
        description="pending, running, ready, failed, stalled, unreachable, stale, deleting, destroyed or suspended"
    )
    status_since: datetime | None
    reason: str = Field(description="Reason of the last run that ended")
    message: str
    waiting_for: str = Field(description="What an ask waits for: a live worker, or what the last run was skipped for")
    revision: str = Field(description="Full SHA of the last run")
    subject: str
    applied_revision: str = Field(description="Full SHA that was applied and confirmed last")
    applied_at: datetime | None
    requested: int = Field(description="Generation of the last ask")
    observed: int = Field(
        description="Generation that the last ended run served; equal to `requested` when all is done"
    )
    due_at: datetime | None = Field(description="When the schedule asks next; null: by push and by hand only")
    last_run: RunBrief | None = Field(description="The run that goes on, else the one that ended last")
    labels: dict[str, str]
    path: str = Field(description="The document in the source's repository")
    repository: str
    ref: str
    suspended_by: str
    suspended_why: str


class SourceView(_View):
    """One source and how its last sync went."""

    name: str
    repo: str
    branch: str
    path: str
    interval: int = Field(description="Seconds between two looks at the remote; 0: by push and by hand only")
    allow: dict[str, Any]
    status: str
    reason: str
    message: str
    revision: str = Field(description="Full SHA that the documents in the store come from")
    subject: str
    author: str = Field(description="Who made that revision, as its commit says")
    last_run: RunBrief | None
    due_at: datetime | None


class EventEntry(_View):
    """One entry of the event stream."""

    id: str
    event: str = Field(
        description="ended, changed, failed, recovered, stalled, unreachable, stale, suspended, paused, pool_dead …"
    )
    target: str = Field(description="Empty for an event of the whole fleet")
    at: datetime | None
    run: str
    status: str
    reason: str
    message: str
    revision: str


def run_brief(view: RunView) -> RunBrief:
    """Return a run without its log."""
    return RunBrief(**_run_fields(view))


def run_full(view: RunView, log: str) -> RunFull:
    """Return a run with its log and all other fields."""
    fields = _run_fields(view)
    shown = {*fields, "item", "log", "tools", "waited_ms"}
    rest = {name: value for name, value in view.fields.items() if name not in shown and value}
    return RunFull(**fields, tools=_object(view.fields.get("tools")), log=log, record=rest)


def _run_fields(view: RunView) -> dict[str, Any]:
    known = view.fields
    started, ended = view.time("started_at"), view.time("ended_at")
    counts = _object(known.get("counts"))
    return {
        "run": view.run,
        "target": view.item,
        "kind": known.get("kind", ""),
        "pool": known.get("pool", ""),
        "state": view.state,
        "reason": known.get("reason", ""),
        "message": known.get("message", ""),
        "revision": known.get("revision", ""),
        "subject": known.get("subject", ""),
        "counts": CountsView(**counts) if counts else None,
        "causes": _causes(known.get("causes")),
        "generation": int(known.get("generation") or 0),
        "started_at": started,
        "ended_at": ended,
        "seconds": (ended - started).total_seconds() if started and ended else None,
        "waited_seconds": float(known["waited_ms"]) / 1000 if known.get("waited_ms") else None,
        "holder": known.get("holder", ""),
    }


def targets_of(store: RedisStore, fleet: FleetState, names: Iterable[str]) -> list[TargetView]:
    """Return these targets with their runs, in three round trips."""
    views = list(store.items(names))
    runs = _runs_by_item(store, views)
    dead = {pool.pool for pool in fleet.dead_pools()}
    return [_target(view, runs.get(view.item), dead) for view in views]


def sources_of(store: RedisStore) -> list[SourceView]:
    """Return all sources with their last sync."""
    registered = store.sources()
    views = {view.item: view for view in store.items(keys.source_item(name) for name in registered)}
    runs = _runs_by_item(store, list(views.values()))
    found = []
    for name, registration in registered.items():
        view = views.get(keys.source_item(name))
        found.append(_source(name, registration, view, runs.get(keys.source_item(name))))
    return found


def event_entry(view: EventView) -> EventEntry:
    """Return an event."""
    shown = {name: view.fields.get(name, "") for name in ("run", "status", "reason", "message", "revision")}
    return EventEntry(id=view.id, event=view.event, target=view.item, at=view.at, **shown)


def _runs_by_item(store: RedisStore, views: Sequence[ItemView]) -> dict[str, RunBrief]:
    ids = [run_id for view in views if (run_id := view.fields.get("run") or view.last_run)]
    return {view.item: run_brief(view) for view in store.runs_of(ids)} if ids else {}


def _waiting_for(view: ItemView, dead_pools: AbstractSet[str]) -> str:
    pool = view.fields.get("queued_pool")
    if pool in dead_pools:
        return f"no live worker serves pool '{pool}'"
    return view.fields.get("waiting_for", "")


def _target(view: ItemView, run: RunBrief | None, dead_pools: AbstractSet[str]) -> TargetView:
    known = view.fields
    return TargetView(
        name=view.item,
        source=view.item.partition("/")[0],
        kind=view.kind,
        pool=view.pool,
        status=view.status,
        status_since=view.time("status_since"),
        reason=view.reason,
        message=view.message,
        revision=view.revision,
        subject=known.get("subject", ""),
        waiting_for=_waiting_for(view, dead_pools),
        applied_revision=view.applied_revision,
        applied_at=view.time("applied_at"),
        requested=view.requested,
        observed=view.observed,
        due_at=view.due_at,
        last_run=run,
        labels={name: str(value) for name, value in _object(known.get("labels")).items()},
        path=known.get("path", ""),
        repository=redact_url(known.get("url", "")),
        ref=known.get("ref", ""),
        suspended_by=known.get("suspended_by", ""),
        suspended_why=known.get("suspended_why", ""),
    )


def _source(name: str, registration: dict[str, Any], view: ItemView | None, run: RunBrief | None) -> SourceView:
    return SourceView(
        name=name,
        repo=redact_url(str(registration.get("repo", ""))),
        branch=str(registration.get("branch", "")),
        path=str(registration.get("path", "")),
        interval=int(registration.get("interval") or 0),
        allow=dict(registration.get("allow") or {}),
        status=view.status if view else "pending",
        reason=view.reason if view else "",
        message=view.message if view else "",
        revision=view.revision if view else "",
        subject=view.fields.get("subject", "") if view else "",
        author=view.fields.get("author", "") if view else "",
        last_run=run,
        due_at=view.due_at if view else None,
    )


def _object(text: str | None) -> dict[str, Any]:
    """Read a JSON object that a record holds; anything else is an empty one."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _causes(text: str | None) -> list[CauseView]:
    try:
        causes = json.loads(text or "[]")
    except ValueError:
        return []
    return [
        CauseView(trigger=str(cause.get("trigger", "")), actor=str(cause.get("actor", "")))
        for cause in causes
        if isinstance(cause, dict)
    ]
