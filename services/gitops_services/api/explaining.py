"""Why a target is as it is and what happens next, in plain sentences. Pure: what is known of it in, text out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gitops_reconciler.redaction import printable
from gitops_reconciler.store.fleet import DeadPool, LiveWorker, Pause
from gitops_reconciler.store.redis import ItemView, RunView

_SHORT_SHA = 12
_LONGEST = 400
_OVERDUE_SECONDS = 10.0
_UNITS = ((86400, "day"), (3600, "h"), (60, "min"), (1, "s"))


class Explanation(BaseModel):
    """Why a target is as it is."""

    model_config = ConfigDict(frozen=True)

    name: str
    summary: str = Field(description="The one thing to know: what it waits for, or how it stands")
    facts: list[str] = Field(description="Everything that bears on it, one sentence or two each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What bears on a target and does not stand in its own record; times are the store's."""

    now: datetime
    run: RunView | None = None
    """The run that goes on, else the one that ended last."""
    lease_seconds: float | None = None
    """What is left of the target's lease; None: there is none."""
    pause: Pause | None = None
    dead_pools: tuple[DeadPool, ...] = ()
    workers: tuple[LiveWorker, ...] = ()
    gap_seconds: float = 0.0
    """How long expired leases are still left to their holders."""
    swept_at: datetime | None = None
    """When a beat looked at the schedule last."""


def explain(view: ItemView, situation: Situation) -> Explanation:
    """Return why the target is as it is; what weighs most comes first and is the summary."""
    story = _Story(view, situation)
    facts = list(story.facts())
    return Explanation(name=view.item, summary=facts[0], facts=facts[1:])


@dataclass(frozen=True, slots=True)
class _Story:
    view: ItemView
    situation: Situation

    def facts(self) -> Iterator[str]:
        """Yield what hinders it, then what goes on, then how it stands."""
        yield from self._hindrances()
        yield from self._running()
        yield from self._asked()
        yield from self._waits()
        yield from self._standing()
        yield from self._last_run()
        yield from self._next()

    # --- what keeps it from running ------------------------------------------------------------------------------

    def _hindrances(self) -> Iterator[str]:
        known, name = self.view.fields, self.view.item
        pause = self.situation.pause
        if pause is not None:
            who = f" by {pause.actor}" if pause.is_by_person else ""
            when = f" {self._ago(pause.at)}" if pause.at else ""
            yield (
                f"The fleet was paused{who}{when}: {_text(pause.reason) or 'no reason given'}. "
                "No target runs until `gitops resume --fleet`."
            )
            if pause.advice:
                yield f"{pause.advice[0].upper()}{_text(pause.advice[1:])}."
        if "suspended" in known:
            why = _text(known.get("suspended_why")) or "no reason given"
            yield (
                f"It was suspended by {known.get('suspended_by') or 'somebody'}"
                f" {self._ago(self.view.time('suspended'))}: {why}. Asks are remembered; it runs once it is resumed."
            )
        if known.get("desired") == "absent":
            yield (
                "It was destroyed as wished: only a person's ask runs it again."
                if known.get("status") == "destroyed"
                else "It is wished to be gone: its next run destroys it, and the schedule does not ask for it."
            )
        elif "stale" in known:
            yield (
                f"Its document left the tree {self._ago(self.view.time('stale'))}: what was applied may still exist, "
                "and nothing runs until the document is back."
            )
        if known.get("status") == "stalled":
            yield from self._stalled(name)

    def _stalled(self, name: str) -> Iterator[str]:
        revision = self.view.fields.get("stalled_at", "").partition(" ")[0]
        where = f" at revision {revision[:_SHORT_SHA]}" if revision else ""
        yield (
            f"It is stalled{where} ({self.view.reason or 'unknown'}): {_text(self.view.message) or 'no details'}. "
            "The schedule does not try the same revision and document again; a new revision, a changed document or "
            f"`gitops enqueue {name}` does."
        )

    # --- what goes on --------------------------------------------------------------------------------------------

    def _running(self) -> Iterator[str]:
        known = self.view.fields
        if "token" not in known:
            return
        started = self.situation.run.time("started_at") if self.situation.run else None
        since = f" for {self._span_since(started)}" if started else ""
        where = f"on {known.get('holder') or 'a worker'} (run {known.get('run', '')})"
        yield f"It has been running{since} {where}{self._why()}."
        left = self.situation.lease_seconds
        if known.get("revoked") == known["token"]:
            yield "Its lease was revoked: the run is interrupted, and the next one may start once the lease has ended."
        elif left is not None:
            yield f"Its lease ends in {_span(left)} unless the run renews it."
        elif self.situation.gap_seconds > 0:
            yield (
                "Its lease has ended, but Redis was away: the run has another "
                f"{_span(self.situation.gap_seconds)} to come back before another takes it."
            )
        else:
            yield "Its lease has ended: the next sweep counts the run as lost and asks for it again."
        if self.view.requested > int(known.get("claimed") or 0):
            yield "It was asked for meanwhile: exactly one more run follows."

    def _asked(self) -> Iterator[str]:
        pool = self.view.fields.get("queued_pool")
        if pool is None:
            return
        since = self._span_since(self.view.time("queued_at"))
        serving = [worker for worker in self.situation.workers if pool in worker.pools]
        if not serving:
            said = " (PoolDead)" if any(dead.pool == pool for dead in self.situation.dead_pools) else ""
            yield (
                f"An ask has waited for {since} in pool '{pool}', which no live worker serves{said}: "
                f"start a worker with GITOPS_POOLS={pool}, or find out why its workers are gone."
            )
            return
        slots, busy = sum(worker.slots for worker in serving), sum(worker.busy for worker in serving)
        several = f"{len(serving)} live workers serve" if serving[1:] else f"the worker {serving[0].name} serves"
        yield f"An ask has waited for {since} in pool '{pool}', which {several} ({busy} of {slots} slots are busy)."

    def _waits(self) -> Iterator[str]:
        known = self.view.fields
        if known.get("waiting_for"):
            yield f"Its last run did nothing but wait: {_text(known['waiting_for'])}."
        lost, early = int(known.get("lost_ends") or 0), int(known.get("early_ends") or 0)
        again = f"it is tried again {self._in(self.view.due_at)}" if self.view.due_at else "it is asked for again"
        if lost:
            times = "Its last run was" if lost == 1 else f"Its last {lost} runs were"
            yield f"{times} lost, outcome unknown: {again}; after three in a row it stalls."
        elif early:
            times = "Its last run ended" if early == 1 else f"Its last {early} runs ended"
            yield f"{times} before the apply: {again} (pauses double from 10 s to 15 min)."

    # --- how it stands -------------------------------------------------------------------------------------------

    def _standing(self) -> Iterator[str]:
        status, known = self.view.status, self.view.fields
        if status in {"failed", "unreachable"}:
            what = "Its last run failed" if status == "failed" else "Its host could not be reached"
            yield f"{what} ({self.view.reason or 'unknown'}): {_text(self.view.message) or 'no details'}."
        if self.view.applied_revision:
            subject = f" ({_text(known.get('subject'))})" if known.get("subject") and self._is_up_to_date() else ""
            yield (
                f"Revision {self.view.applied_revision[:_SHORT_SHA]}{subject} was applied and confirmed "
                f"{self._ago(self.view.time('applied_at'))}."
            )
        else:
            yield "Nothing was ever applied and confirmed."

    def _is_up_to_date(self) -> bool:
        return self.view.applied_revision == self.view.revision

    def _last_run(self) -> Iterator[str]:
        run = self.situation.run
        if run is None or "token" in self.view.fields:
            return
        ended = run.time("ended_at")
        when = f" {self._ago(ended)}" if ended else ""
        yield f"Its last run ({run.run}) ended{when} as {run.state.replace('_', ' ')}{self._why()}."

    def _next(self) -> Iterator[str]:
        view, now = self.view, self.situation.now
        yield _asks(view.requested, view.observed)
        if view.due_at is None:
            if "token" not in view.fields and view.fields.get("schedule", "{}") == "{}":
                yield "It has no schedule: it runs when somebody pushes or asks."
            return
        if (now - view.due_at).total_seconds() < _OVERDUE_SECONDS or self.situation.pause is not None:
            yield f"The schedule asks for it {self._in(view.due_at)}{_every(view.fields.get('schedule'))}."
            return
        swept = self.situation.swept_at
        looked = f"the last sweep was {self._ago(swept)}" if swept else "no sweep was ever made"
        yield f"It has been due for {self._span_since(view.due_at)}, and {looked}: is a beat running?"

    # --- words ---------------------------------------------------------------------------------------------------

    def _why(self) -> str:
        causes = [] if self.situation.run is None else _list(self.situation.run.fields.get("causes"))
        texts = [f"{cause.get('trigger', '')} {cause.get('actor', '')}".strip() for cause in causes]
        return f", asked for by {_text(', '.join(dict.fromkeys(texts)))}" if texts else ""

    def _span_since(self, then: datetime | None) -> str:
        return _span((self.situation.now - then).total_seconds()) if then else "an unknown time"

    def _ago(self, then: datetime | None) -> str:
        return f"{self._span_since(then)} ago"

    def _in(self, then: datetime | None) -> str:
        seconds = (then - self.situation.now).total_seconds() if then else 0.0
        return f"in {_span(seconds)}" if seconds >= 1 else "now"


def _span(seconds: float) -> str:
    """Return a length of time in its largest unit, in two below ten of it: `75 s`, `5 min`, `3 h 20 min`."""
    whole = max(0, round(seconds))
    if whole < 2 * 60:
        return f"{whole} s"
    index = next(index for index, (size, _) in enumerate(_UNITS) if whole >= size)
    size, unit = _UNITS[index]
    count, rest = divmod(whole, size)
    smaller, smaller_unit = _UNITS[min(index + 1, len(_UNITS) - 1)]
    more = f" {rest // smaller} {smaller_unit}" if unit != "min" and rest >= smaller else ""
    return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}{more}"


def _every(schedule: str | None) -> str:
    said = _object(schedule)
    if said.get("cron"):
        return f" (cron {_text(str(said['cron']))})"
    return f" (every {_span(float(said['interval']))})" if said.get("interval") else ""


def _asks(requested: int, observed: int) -> str:
    if not requested:
        return "It was never asked for."
    asks = f"It was asked for {'once' if requested == 1 else f'{requested} times'}"
    if observed >= requested:
        return f"{asks}, and a run that started afterwards has ended."
    return f"{asks}; no run that started after the last time has ended yet."


def _text(text: str | None) -> str:
    """Return a text of tools or people on one line, bounded, ready for a full stop."""
    line = " ".join(printable(text or "").split()).rstrip(".")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _object(text: str | None) -> Mapping[str, Any]:
    value = _read(text)
    return value if isinstance(value, dict) else {}


def _list(text: str | None) -> list[Mapping[str, Any]]:
    value = _read(text)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _read(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None
