"""The fleet as a whole: whether it is paused, which pools nobody serves, and pausing and resuming it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel, ConfigDict, Field

from gitops_reconciler import keys
from gitops_reconciler.redis_text import as_text
from gitops_reconciler.store.fleet import DeadPool, Pause
from gitops_reconciler.store.redis import ItemView, from_ms
from gitops_reconciler.store.tokens import Role
from gitops_services.access import caller_of, require
from gitops_services.api.explaining import Situation
from gitops_services.parts import Parts


class PauseView(BaseModel):
    """Why no target is claimed."""

    model_config = ConfigDict(frozen=True)

    reason: str
    advice: str = Field(description="What to look at before the fleet is resumed; empty for a pause by a person")
    by: str = Field(description="The person, or the host that noticed")
    since: datetime | None


class DeadPoolView(BaseModel):
    """A pool in which asks wait while no live worker serves it."""

    model_config = ConfigDict(frozen=True)

    pool: str
    waiting: int = Field(description="How many targets and sources wait there")
    since: datetime | None = Field(description="When the oldest of these asks was made")
    oldest: str = Field(description="Which target, or source item, that is")


class WorkerView(BaseModel):
    """A worker that was heard of lately."""

    model_config = ConfigDict(frozen=True)

    name: str
    pools: list[str]
    slots: int
    busy: int


class FleetStatus(BaseModel):
    """The fleet as a whole."""

    model_config = ConfigDict(frozen=True)

    paused: PauseView | None = Field(description="Null in normal times")
    dead_pools: list[DeadPoolView]
    workers: list[WorkerView] = Field(description="Those that live")
    swept_at: datetime | None = Field(description="When the schedule was looked at last; null: never")


class Changed(BaseModel):
    """What became of a wish to pause or to resume."""

    model_config = ConfigDict(frozen=True)

    changed: bool = Field(description="False: it was so before")
    paused: PauseView | None


class Why(BaseModel):
    """Goes with a wish."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str = Field(default="", max_length=500, description="For the people who wonder")


class FleetRoutes:
    """Routes below `/gitops`."""

    def __init__(self, parts: Parts) -> None:
        """Serve from these parts."""
        self._parts = parts

    def add_to(self, router: APIRouter) -> None:
        """Register the routes."""
        add = router.add_api_route
        add("/gitops/status", self.status, response_model=FleetStatus, summary="The fleet as a whole")
        add("/gitops/pause", self.pause, methods=["POST"], response_model=Changed, summary="Pause the fleet")
        add("/gitops/resume", self.resume, methods=["POST"], response_model=Changed, summary="Resume the fleet")

    def status(self) -> FleetStatus:
        """Whether it is paused, which pools nobody serves, which workers live."""
        state = self._parts.fleet
        workers = [
            WorkerView(name=worker.name, pools=sorted(worker.pools), slots=worker.slots, busy=worker.busy)
            for worker in state.workers()
        ]
        return FleetStatus(
            paused=_pause_view(state.pause()),
            dead_pools=[dead_pool_view(dead) for dead in state.dead_pools()],
            workers=workers,
            swept_at=from_ms(as_text(self._parts.client).hget(keys.SWEPT, "at")),
        )

    def pause(self, request: Request, why: Annotated[Why | None, Body()] = None) -> Changed:
        """Let no target be claimed in the whole fleet; runs under way end by themselves, sources are still synced."""
        caller = caller_of(request)
        require(caller, Role.OPERATOR)
        before = self._parts.fleet.pause()
        self._parts.work.pause(why.reason if why else "", actor=caller.name)
        return Changed(changed=before is None, paused=_pause_view(self._parts.fleet.pause()))

    def resume(self, request: Request, why: Annotated[Why | None, Body()] = None) -> Changed:
        """Let claims go on. Hosts that had noticed another store adopt this one, and every item is asked once."""
        caller = caller_of(request)
        require(caller, Role.OPERATOR)
        changed = self._parts.work.resume(actor=caller.name, reason=why.reason if why else "")
        return Changed(changed=changed, paused=_pause_view(self._parts.fleet.pause()))


def _pause_view(pause: Pause | None) -> PauseView | None:
    if pause is None:
        return None
    return PauseView(reason=pause.reason, advice=pause.advice, by=pause.actor, since=pause.at)


def dead_pool_view(dead: DeadPool) -> DeadPoolView:
    """Return a pool that nobody serves."""
    return DeadPoolView(pool=dead.pool, waiting=dead.waiting, since=dead.since, oldest=dead.oldest)


def situation_of(parts: Parts, view: ItemView) -> Situation:
    """Return what bears on a target and does not stand in its own record."""
    client = parts.client
    seconds, micros = as_text(client).time()
    now = seconds + micros / 1e6
    left_ms = as_text(client).pttl(keys.lease(view.item))
    gap_until = as_text(client).get(keys.GAP_UNTIL)
    run_id = view.fields.get("run") or view.last_run
    runs = parts.store.runs_of([run_id]) if run_id else []
    return Situation(
        now=datetime.fromtimestamp(now, UTC),
        run=runs[0] if runs else None,
        lease_seconds=left_ms / 1000 if left_ms > 0 else None,
        pause=parts.fleet.pause(),
        dead_pools=parts.fleet.dead_pools(),
        workers=parts.fleet.workers(),
        gap_seconds=max(0.0, float(gap_until) / 1000 - now) if gap_until else 0.0,
        swept_at=from_ms(as_text(client).hget(keys.SWEPT, "at")),
    )
