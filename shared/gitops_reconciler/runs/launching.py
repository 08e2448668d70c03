"""The worker's side of a run: claim, order a supervised run from the warm server, wait for its end."""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from gitops_reconciler.clock import Clock
from gitops_reconciler.errors import GitopsError, Reason
from gitops_reconciler.layout import Layout
from gitops_reconciler.outcomes import NextAsk, RunState, TargetStatus
from gitops_reconciler.runs.epochs import HostEpoch
from gitops_reconciler.settings import Settings
from gitops_reconciler.store.redis import RunView
from gitops_reconciler.supervise.order import Order
from gitops_reconciler.supervise.patrol import Patrol
from gitops_reconciler.work.base import SOURCE_KIND, Claim, Completion, Refusal, Work

_log = logging.getLogger("gitops_reconciler")
_SLACK_SECONDS = 2.0
_SHOWN_MESSAGE = 200
_KILLED = "the processes that watched the run were killed: outcome unknown"
_NOT_OURS = "the store is another one than this host worked with: nothing was run"
_LEFT_LYING = "no server of runs took up the order in time: nothing was run"
_BUSY = "something of an earlier run still lives on this host and holds the target's lock"


class Running(Protocol):
    """A run under way."""

    @property
    def failure(self) -> str:
        """Why nothing was started; empty in normal times."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a leftover of an earlier run holds the target's flock, so that nothing was started."""
        ...

    @property
    def was_left_lying(self) -> bool:
        """Whether a frozen server of runs never took up the order, so that nothing was started."""
        ...

    def wait(self) -> bool:
        """Block until guard and supervisor are gone."""
        ...

    def stop(self) -> None:
        """Have the run interrupted; no effect once it is over."""
        ...


class Launcher(Protocol):
    """Starts supervised runs."""

    def start(self, order: Order) -> Running:
        """Start the run; it lives on when this process ends."""
        ...

    def close(self) -> None:
        """End the warm server; runs under way are not touched."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRunner:
    """Runs items of the fleet, one call a message. Safe to share between the threads of a worker."""

    work: Work
    launcher: Launcher
    settings: Settings
    clock: Clock
    read_run: Callable[[str], RunView | None] | None = None
    """Reads the record of a run that ended, to say in the log how."""
    epoch: HostEpoch | None = None
    """Tells whether the store is the one that this host worked with; a claim under another epoch is not run."""
    patrol: Patrol | None = None
    """Ends what dead runs of other workers left on this host; was started by whoever made it."""
    _under_way: dict[str, Running] = field(default_factory=dict, init=False)
    _is_winding_down: threading.Event = field(default_factory=threading.Event, init=False)
    _is_stopped: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self, item: str) -> str | None:
        """Claim the item and run it to its end; returns the run's id, or None when there was nothing to run."""
        if self._is_winding_down.is_set():
            self.work.hand_back(item)
            return None
        run = uuid4().hex
        ttl_ms = round(self.settings.lease_ttl.total_seconds() * 1000)
        claim = self.work.claim(item, run, ttl_ms=ttl_ms, holder=platform.node(), pools=self.settings.pools)
        if isinstance(claim, Refusal):
            _log.debug("nothing to run", extra={"target": item, "why": claim.value})
            return None
        if not self._may_run(claim):
            self._give_back(claim, RunState.SKIPPED, Reason.FLEET_PAUSED, _NOT_OURS)
            return None
        _log.debug("run started", extra={"target": item, "run": run, "trigger": _triggers(claim)})
        try:
            order = order_of(claim, self.settings, self.settings.layout)
            running = self._under_way[run] = self.launcher.start(order)
        except GitopsError as error:
            self._give_back(claim, RunState.FAILED, Reason.INTERNAL_ERROR, f"the run could not be started: {error}")
            raise
        self._see_through(claim, running)
        self._tell(item, run)
        return run

    def _see_through(self, claim: Claim, running: Running) -> None:
        """Wait for the end of the run; where its supervisor did not write one, we do."""
        if self._is_stopped.is_set():
            running.stop()
        try:
            was_seen_through = running.wait()
        finally:
            del self._under_way[claim.run]
        if running.is_busy:
            self._give_back(claim, RunState.SKIPPED, Reason.BUSY, _BUSY)
        elif running.was_left_lying:  # says nothing of the target: nobody is to be woken for it
            self._give_back(claim, RunState.ABORTED, Reason.INTERNAL_ERROR, _LEFT_LYING)
        elif running.failure and not was_seen_through:
            self._give_back(claim, RunState.FAILED, Reason.INTERNAL_ERROR, running.failure)
        elif not was_seen_through:
            self._give_back(claim, RunState.LOST, Reason.LOST, _KILLED)

    def _may_run(self, claim: Claim) -> bool:
        """Whether the store is the one that this host worked with; a sync only writes down what is declared."""
        return self.epoch is None or claim.kind == SOURCE_KIND or self.epoch.is_ours(claim.asked[0])

    def _tell(self, item: str, run: str) -> None:
        view = None if self.read_run is None else self.read_run(run)
        state = view.state if view is not None else "unknown"
        message = view.fields.get("message", "") if view is not None else ""
        is_bad = state in {RunState.FAILED, RunState.UNREACHABLE, RunState.ABORTED, RunState.LOST, RunState.RUNNING}
        log = _log.warning if is_bad else _log.info
        log("run ended", extra={"target": item, "run": run, "state": state, "message_": message[:_SHOWN_MESSAGE]})

    def wind_down(self) -> None:
        """Begin no more runs; an item that is still handed over is woken again, for another worker."""
        self._is_winding_down.set()

    def stop(self) -> None:
        """Interrupt the runs under way, each of which still writes its end; who waits for one waits on."""
        self._is_stopped.set()
        for running in list(self._under_way.values()):
            running.stop()

    def close(self) -> None:
        """End the warm server and the patrol."""
        if self.patrol is not None:
            self.patrol.close()
        self.launcher.close()

    def _give_back(self, claim: Claim, state: RunState, reason: Reason, message: str) -> None:
        """Complete a claim whose run never began."""
        record = {"state": state.value, "reason": reason.value, "message": message}
        status = TargetStatus.FAILED.value if state is RunState.FAILED else None
        completion = Completion(record=record, status=status, next_ask=NextAsk.BACKOFF, due_in_ms=None, applied=False)
        self.work.complete(claim.item, claim.token, claim.run, completion)


def _triggers(claim: Claim) -> str:
    return ",".join(dict.fromkeys(cause.trigger.value for cause in claim.causes))


def patrol_of(settings: Settings) -> Patrol:
    """Return the patrol over the runs of this state folder; not started."""
    grace = settings.lease_grace.total_seconds()
    window = settings.lease_ttl.total_seconds() - grace - _SLACK_SECONDS
    return Patrol(settings.layout.locks, grace_seconds=grace, frozen_seconds=window)


def order_of(claim: Claim, settings: Settings, layout: Layout) -> Order:
    """Return the order of a claimed run: names, paths and times, no secret and no config."""
    return Order(
        run=claim.run,
        item=claim.item,
        kind=claim.kind,
        token=claim.token,
        generation=claim.generation,
        ttl_seconds=settings.lease_ttl.total_seconds(),
        renewal_seconds=settings.lease_renewal.total_seconds(),
        grace_seconds=settings.lease_grace.total_seconds(),
        slack_seconds=_SLACK_SECONDS,
        tidy_seconds=1.0,
        deadline_seconds=claim.deadline_seconds,
        claimed_at=claim.claimed_at,
        lock=str(layout.lock(claim.kind, claim.item)),
        leftover=str(layout.leftover(claim.kind, claim.item)),
        log=str(layout.log(claim.run)),
        payload={
            "is_wanted": claim.is_wanted,
            "schedule": claim.schedule,
            "asked": list(claim.asked),
            "triggers": [cause.trigger.value for cause in claim.causes],
            "actors": [cause.actor for cause in claim.causes],
            "stalled_at": claim.stalled_at,
        },
    )
