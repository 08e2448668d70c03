"""What DESIGN section 3 says of asks, claims and leases, as a small program of its own: no Redis, no script, no queue.

Time is in seconds of the store's clock and only moves when told to. Messages are none of the model's business: they are
hints, so nothing in here may depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gitops_reconciler.outcomes import NextAsk, Trigger
from gitops_reconciler.work.base import Answer, Mark, Refusal, Renewal

TTL = 60
NEVER = -(10**9)
LONGEST_PAUSE = 15
LOST_LIMIT = 3
RESETTING = {Trigger.MANUAL, Trigger.WEBHOOK, Trigger.SOURCE}


def backoff(times: int) -> int:
    """Return 10 s, doubling to 15 min."""
    return int(min(900, 10 * 2 ** (times - 1)))


@dataclass
class Held:
    """One lease, until it is completed or taken from its holder; also when it has expired."""

    run: str
    token: int
    generation: int
    until: int
    is_wanted: bool
    before: str
    looked_at: int
    """When a sweep looks whether it has expired; renewals do not change that."""
    is_revoked: bool = False


@dataclass
class Item:
    """One item."""

    pool: str
    interval: int | None
    requested: int = 0
    observed: int = 0
    is_queued: bool = False
    held: Held | None = None
    due: int | None = None
    due_anew: tuple[int | None] | None = None
    is_suspended: bool = False
    is_stale: bool = False
    is_absent: bool = False
    status: str = "pending"
    early_ends: int = 0
    lost_ends: int = 0
    resource: str = ""
    resources: set[str] = field(default_factory=set)

    @property
    def hindrance(self) -> Answer | None:
        """Why no run may start."""
        if self.is_suspended:
            return Answer.SUSPENDED
        if self.is_absent:
            return Answer.DESTROYED if self.status == "destroyed" else None
        return Answer.STALE if self.is_stale else None


@dataclass
class Ended:
    """How a run ended, as the machine chooses it."""

    state: str
    status: str | None
    next_ask: NextAsk
    applied: bool = False


ENDS = {
    "changed": Ended("changed", "ready", NextAsk.INTERVAL, applied=True),
    "failed": Ended("failed", "failed", NextAsk.INTERVAL),
    "skipped": Ended("skipped", None, NextAsk.BACKOFF),
    "early": Ended("failed", "failed", NextAsk.BACKOFF),
    "stalled": Ended("failed", "stalled", NextAsk.STALLED),
    "lost": Ended("lost", None, NextAsk.BACKOFF),
    "destroyed": Ended("changed", "destroyed", NextAsk.NEVER),
}


@dataclass
class Record:
    """What the store knows of a run."""

    item: str
    token: int
    state: str = "running"
    is_late: bool = False


class Model:
    """The whole fleet."""

    def __init__(self) -> None:
        self.clock = 0
        self.forget_all()

    def forget_all(self) -> None:
        """An emptied store."""
        self.items: dict[str, Item] = {}
        self.ghosts: dict[str, int] = {}
        self.records: dict[str, Record] = {}
        self.owners: dict[str, str] = {}
        self.swept_at: int | None = None
        self.gap_until: int | None = None
        self.is_other_server = self.is_paused = False

    def move(self, seconds: int) -> None:
        """Let time pass, or jump; what has expired by then stays so, also when it jumps back."""
        self.clock += seconds
        for item in self.items.values():
            if item.held is not None and item.held.until <= self.clock:
                item.held.until = NEVER
        self.ghosts = {name: until for name, until in self.ghosts.items() if until > self.clock}
        if self.gap_until is not None and self.gap_until <= self.clock:
            self.gap_until = None

    # --- asking --------------------------------------------------------------------------------------------------

    def ask(self, name: str, trigger: Trigger) -> tuple[Answer, int]:
        item = self.items.get(name)
        if item is None:
            return Answer.UNKNOWN, 0
        item.requested += 1
        if trigger in RESETTING:
            item.early_ends = item.lost_ends = 0
        hindrance = item.hindrance
        if hindrance is Answer.DESTROYED and trigger is Trigger.MANUAL:
            hindrance = None
        if hindrance is not None:
            return hindrance, item.requested
        if item.held is not None:
            return Answer.DEFERRED, item.requested
        answer = Answer.COALESCED if item.is_queued else Answer.QUEUED
        item.is_queued = True
        return answer, item.requested

    # --- running -------------------------------------------------------------------------------------------------

    @property
    def is_in_gap(self) -> bool:
        if self.gap_until is not None and self.clock < self.gap_until:
            return True
        return self.swept_at is not None and self._gap_begins(self.swept_at)

    def _gap_begins(self, swept_at: int) -> bool:
        return self.is_other_server or self.clock - swept_at > LONGEST_PAUSE or swept_at > self.clock + 1

    def claim(self, name: str, run: str, *, is_served: bool) -> Refusal | Held | None:
        """Return the refusal, the lease that the same run holds already, or None: a new lease is to be given."""
        item = self.items.get(name)
        if item is None:
            return Refusal.UNKNOWN
        held = item.held
        if held is not None and held.run == run and not held.is_revoked:
            held.until = self.clock + TTL
            return held
        if (held is not None and held.until > self.clock) or self.ghosts.get(name, self.clock) > self.clock:
            return Refusal.BUSY
        if self.is_paused or not is_served:
            return Refusal.PAUSED if self.is_paused else Refusal.ELSEWHERE
        if held is not None and self.is_in_gap:
            return Refusal.GAP
        return self._claim_free(item)

    def _claim_free(self, item: Item) -> Refusal | None:
        if item.held is not None:
            self._lose(item)
        is_asked, item.is_queued = item.is_queued, False
        if item.hindrance is not None and not (item.hindrance is Answer.DESTROYED and is_asked):
            return Refusal(item.hindrance.value)
        return None if is_asked and item.requested > item.observed else Refusal.NOTHING_TO_DO

    def claimed(self, name: str, run: str, token: int) -> None:
        """The new lease was given."""
        item = self.items[name]
        until = self.clock + TTL
        item.held = Held(run, token, item.requested, until, not item.is_absent, item.status, until)
        item.due, item.status = None, "running"
        self.records[run] = Record(name, token)

    def _lose(self, item: Item) -> None:
        held = item.held
        assert held is not None
        item.held = item.due_anew = None
        item.status = held.before
        item.lost_ends += 1
        if held.run in self.records:
            self.records[held.run].state = "lost"
        if item.lost_ends >= LOST_LIMIT:
            item.status = "stalled"
            if item.interval and not item.is_absent and item.hindrance is None:
                item.due = self.clock + item.interval
        elif item.hindrance is None:
            if item.lost_ends == 1:
                item.is_queued = True
            else:
                item.due = self.clock + backoff(item.lost_ends - 1)

    def held(self, name: str, token: int, run: str) -> tuple[Item, Held] | None:
        item = self.items.get(name)
        if item is None or item.held is None or (item.held.token, item.held.run) != (token, run):
            return None
        return item, item.held

    def renew(self, name: str, token: int, run: str) -> Renewal:
        found = self.held(name, token, run)
        if found is None or found[1].is_revoked:
            return Renewal.LOST
        item, held = found
        held.until = self.clock + TTL
        return Renewal.HELD_ASKED_AGAIN if item.requested > held.generation else Renewal.HELD

    def own(self, name: str, token: int, run: str, resource: str) -> str | None:
        """Return the owner, '' for ourselves; None: the lease is lost."""
        found = self.held(name, token, run)
        if found is None:
            return None
        item, _ = found
        owner = self.owners.get(resource, "") if resource else ""
        if owner and owner != name:
            other = self.items[owner]
            if not other.is_stale or other.held is not None or other.is_absent:
                return owner
            other.resources.discard(resource)
        item.resource = resource
        if resource:
            self.owners[resource] = name
            item.resources.add(resource)
        return ""

    def complete(self, name: str, token: int, run: str, end: Ended, due_in: int | None) -> bool:
        found = self.held(name, token, run)
        if found is None:
            return self._refuse(name, token, run)
        item, held = found
        status, next_ask = end.status, end.next_ask
        item.held = None
        item.observed = held.generation
        item.lost_ends = item.lost_ends + 1 if end.state == "lost" else 0
        if item.lost_ends >= LOST_LIMIT:
            status, next_ask, due_in = "stalled", NextAsk.STALLED, item.interval
        item.status = status or held.before
        item.due = self._due_after(item, next_ask, due_in)
        item.due_anew = None
        if end.applied or item.status == "destroyed":
            self._keep(name, {item.resource} if end.applied else set())
        if item.requested > held.generation and item.hindrance is None:
            item.is_queued = True
        self.records[run].state = "ended"
        return True

    def _due_after(self, item: Item, next_ask: NextAsk, due_in: int | None) -> int | None:
        if next_ask is NextAsk.BACKOFF:
            item.early_ends += 1
            is_first_loss = item.lost_ends == 1  # which is no sign that the item is to blame
            due: int | None = self.clock + (0 if is_first_loss else backoff(item.early_ends))
        else:
            item.early_ends = 0
            due = None if due_in is None or item.is_absent else self.clock + due_in
            if item.due_anew is not None and next_ask is not NextAsk.NEVER and not item.is_absent:
                (due,) = item.due_anew
        return None if item.hindrance is not None else due

    def _refuse(self, name: str, token: int, run: str) -> bool:
        record = self.records.get(run)
        if record is not None and record.token == token:
            if record.state == "ended":
                return True
            if record.is_late:
                return False
            record.is_late = True
        self.ask(name, Trigger.RETRY)
        return False

    def _keep(self, name: str, kept: set[str]) -> None:
        item = self.items[name]
        for resource in item.resources - kept:
            if self.owners.get(resource) == name:
                del self.owners[resource]
        item.resources &= kept

    # --- beat ----------------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        if self.swept_at is not None and self._gap_begins(self.swept_at):
            self._begin_gap(has_jumped_back=self.swept_at > self.clock + 1)
        self.swept_at = self.clock
        if self.is_paused:
            return
        for name, item in sorted(self.items.items()):
            if item.due is not None and item.due <= self.clock:
                item.due = None
                self.ask(name, Trigger.SCHEDULE)
        for item in self.items.values():
            if item.held is not None and item.held.looked_at <= self.clock:
                if item.held.until > self.clock:
                    item.held.looked_at = item.held.until
                elif not self.is_in_gap:
                    self._lose(item)

    def _begin_gap(self, *, has_jumped_back: bool) -> None:
        self.gap_until, self.is_other_server = self.clock + TTL, False
        if has_jumped_back:
            self.ghosts = {name: min(until, self.clock + TTL) for name, until in self.ghosts.items()}
        for item in self.items.values():
            if item.hindrance is None:
                item.due = min(self.clock if item.due is None else item.due, self.clock)
            if has_jumped_back and item.held is not None:
                item.held.until = min(item.held.until, self.clock + TTL)
                item.held.looked_at = self.clock + TTL

    # --- what is said between runs -------------------------------------------------------------------------------

    def register(
        self, name: str, pool: str, interval: int | None, *, trigger: Trigger | None, suspend: bool | None
    ) -> None:
        first = None if interval is None else self.clock + interval
        item = self.items.get(name)
        if item is None:
            item = self.items[name] = Item(pool, interval, due=first)
        elif item.is_stale or item.interval != interval:
            if item.held is not None:
                item.due_anew = (first,)
            elif first is None or not item.is_absent:
                item.due = first
        is_let_go = item.is_stale or (suspend is False and item.is_suspended)
        item.pool, item.interval, item.is_stale = pool, interval, False
        item.is_suspended = item.is_suspended if suspend is None else suspend
        if trigger is not None:
            self.ask(name, trigger)
        elif is_let_go:
            self.ask(name, Trigger.SOURCE)
        self._stop(item)

    @staticmethod
    def _stop(item: Item) -> None:
        if item.hindrance is not None:
            item.due, item.is_queued = None, False

    def mark(self, name: str, mark: Mark) -> bool:
        item = self.items.get(name)
        if item is None:
            return False
        if mark is Mark.SUSPEND:
            item.is_suspended = True
            self._stop(item)
        elif mark is Mark.RESUME:
            item.is_suspended = False
            if item.hindrance is not Answer.DESTROYED:
                self.ask(name, Trigger.MANUAL)
        elif mark is Mark.STALE and not item.is_stale:
            item.is_stale = True
            self._stop(item)
        elif mark is Mark.ABSENT:
            item.is_absent, item.due = True, None
            self.ask(name, Trigger.MANUAL)
        elif mark is Mark.PRESENT:
            item.is_absent = False
            self.ask(name, Trigger.MANUAL)
        elif mark is Mark.UNLOCK and item.held is not None:
            item.held.is_revoked = True
        return True

    def forget(self, name: str) -> None:
        if name not in self.items:
            return
        self._keep(name, set())
        item = self.items.pop(name)
        if item.held is not None:
            self.ghosts[name] = item.held.until
            self.move(0)
        self.records = {run: record for run, record in self.records.items() if record.item != name}

    def open(self) -> Iterator[str]:
        """Return what has an ask that nothing hinders and no run has answered."""
        for name, item in self.items.items():
            is_asked = item.requested > item.observed and item.hindrance is None
            if item.held is not None or (is_asked and (item.status != "stalled" or item.is_queued)):
                yield name
