"""The contract of the work protocol (DESIGN section 3): asks, claims and leases in Redis; messages are only hints.

An *item* is what a run works on: a target (`source/name`) or a source (`source:name`). All of it may be asked for at
any time by anyone; a lease makes its run exclusive; a rising token makes a late writer recognisable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gitops_reconciler.outcomes import NextAsk, Trigger

SOURCE_KIND = "source"
SOURCE_POOL = "source"


class Answer(StrEnum):
    """What became of an ask."""

    QUEUED = "queued"
    """A message goes out."""
    COALESCED = "coalesced"
    """Already queued: the run to come serves this ask too."""
    DEFERRED = "deferred"
    """Running: exactly one more run follows."""
    SUSPENDED = "suspended"
    """Remembered; runs when resumed."""
    STALE = "stale"
    """Its document left the tree: remembered, runs when the document is back."""
    DESTROYED = "destroyed"
    """It was destroyed as wished; only a person may ask for it again."""
    UNKNOWN = "unknown"
    """There is no such item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, accepted."""

    item: str
    answer: Answer
    generation: int
    """Reached by `observed` once a run that started after this ask has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Who asked, and why; a claim takes along all that gathered since the last one (bounded)."""

    trigger: Trigger
    actor: str = ""


class Refusal(StrEnum):
    """Why a claim was not given."""

    BUSY = "busy"
    NOTHING_TO_DO = "nothing to do"
    SUSPENDED = "suspended"
    STALE = "stale"
    DESTROYED = "destroyed"
    ELSEWHERE = "elsewhere"
    """Its pool is not one of ours; it was woken in its own."""
    PAUSED = "paused"
    GAP = "gap"
    """Redis was away: no expired lease is taken before its holder had the time to come back."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease on an item: ours until it ends or is lost."""

    item: str
    run: str
    token: int
    generation: int
    kind: str
    pool: str
    is_wanted: bool
    """False: the wish is `absent`, the run destroys."""
    causes: tuple[Cause, ...]
    asked: tuple[str, int]
    """Epoch of the store, and the ask counter of the item's repository: what a fetch must cover."""
    early_ends: int
    """How often in a row runs ended before their apply."""
    schedule: dict[str, Any] = field(default_factory=dict)
    deadline_seconds: float = 3600.0
    stalled_at: str = ""
    """`revision document_hash` at which it stalled: the same again is not tried by the schedule."""
    claimed_at: float = 0.0
    """CLOCK_BOOTTIME when the claim was sent."""


class Renewal(StrEnum):
    """What a renewal was answered."""

    HELD = "held"
    HELD_ASKED_AGAIN = "held and asked again"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Everything that the end of a run writes, in one go."""

    record: dict[str, str]
    """Fields of the run's record: state, result, reason, message, revision, counts, times, tools, log …"""
    status: str | None
    """The target's new status; None keeps the one before the run."""
    next_ask: NextAsk
    due_in_ms: int | None
    """When it is due again; None: by hand and by push only."""
    applied: bool
    """Whether `revision` counts as applied from now on."""
    outputs_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep did."""

    asked: int
    """Due items that were asked for."""
    reclaimed: int
    """Expired leases whose run became `lost`."""
    rewoken: int
    """Asks whose message had got lost."""
    more: bool
    """The limit was reached: sweep again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemSpec:
    """What the protocol must know of an item; written by whoever registers it (source add, sync)."""

    item: str
    kind: str
    pool: str
    repository: str
    """Key of the repository, for the ask counter; may be empty."""
    refs: tuple[str, ...] = ()
    """(`repository key` + `#` + full ref) pairs whose pushes ask for the item."""
    schedule: dict[str, Any] = field(default_factory=dict)
    """`{"interval": seconds}`, `{"cron": …, "time_zone": …}` or `{}` (off)."""
    deadline_seconds: float = 3600.0
    labels: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    """More fields of the item that readers want: source, document, document_hash, path, url, ref …"""

    def stored(self) -> dict[str, str]:
        """Return the fields of the item as they are stored: equal fields need no write."""
        return {
            **self.facts,
            "kind": self.kind,
            "pool": self.pool,
            "repository": self.repository,
            "schedule": json.dumps(self.schedule, sort_keys=True),
            "deadline_seconds": str(self.deadline_seconds),
            "labels": json.dumps(self.labels, sort_keys=True),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Whose lease a write depends on: refused once that lease is not its own any more."""

    item: str
    token: int
    run: str


class Mark(StrEnum):
    """What may be said of an item between its runs."""

    SUSPEND = "suspend"
    RESUME = "resume"
    STALE = "stale"
    ABSENT = "absent"
    PRESENT = "present"
    UNLOCK = "unlock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """What a document declares of its target: suspended, or not."""

    wanted: bool
    actor: str
    reason: str


class Paused(StrEnum):
    """What a pause was answered."""

    PAUSED = "paused"
    KNOWN = "known"
    """It was paused before: nothing more is told to people."""
    SAME = "same"
    """The epoch is this store's: nothing to pause for."""
    ADOPT = "adopt"
    """A person has resumed the fleet for hosts that come from that epoch: go on with this store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNews:
    """What a look at the pools found that people were not told before."""

    dead: tuple[tuple[str, str], ...]
    """Pools that died, each with what there is to say of it."""
    alive: tuple[str, ...]


class Work(Protocol):
    """The six steps, and what stops and watches them all; each is one Lua script, timed by Redis' own clock."""

    def register(
        self,
        spec: ItemSpec,
        *,
        first_due_in_ms: int | None,
        guard: Guard | None = None,
        cause: Cause | None = None,
        suspend: Suspension | None = None,
    ) -> bool:
        """Make an item known or change what is known of it; a changed schedule takes effect at once.

        With a cause it is asked for, with a suspension suspended or resumed, in the same step; an item that was stale
        is not any more. False: the guard's lease is lost, nothing was written.
        """
        ...

    def put_tree(self, source: str, documents: Mapping[str, Mapping[str, Any]], *, guard: Guard) -> bool:
        """Replace what the targets of a source share (`type/kind/name` -> document); False: the lease is lost."""
        ...

    def mark(self, item: str, mark: Mark, *, actor: str, reason: str = "", guard: Guard | None = None) -> bool:
        """Suspend, resume, go stale, wish it absent, revoke its lease …; False: no such item, or the guard is lost."""
        ...

    def forget(self, item: str) -> None:
        """Drop an item: no schedule, no ask, no match; its lease, if any, is revoked."""
        ...

    def request(self, items: list[str], cause: Cause) -> list[Ask]:
        """Ask for a tick of each; generation goes up, one message at most goes out per item."""
        ...

    def push(self, refs: list[str], cause: Cause, *, delivery: str | None) -> list[Ask] | None:
        """Ask for all items that watch one of these refs; None when this delivery id was seen in the last 3 days."""
        ...

    def claim(
        self, item: str, run: str, *, ttl_ms: int, holder: str, pools: tuple[str, ...] = ("*",)
    ) -> Claim | Refusal:
        """Take the lease, or say why not; one round trip. The same run may ask again when an answer was lost."""
        ...

    def hand_back(self, item: str) -> bool:
        """Say that its message was taken by a worker that begins no run any more: it gets a new one, if it waits."""
        ...

    def renew(self, item: str, token: int, run: str, *, ttl_ms: int) -> Renewal:
        """Prolong our lease; works when memory is full."""
        ...

    def complete(self, item: str, token: int, run: str, completion: Completion) -> bool:
        """Write the end of the run with its event and release, in one go; False: the token is dead, nothing counted."""
        ...

    def own(self, guard: Guard, resource: str) -> str:
        """Make a resource the item's own; returns '' when it is that now, else the item that it belongs to.

        Free is what nobody owns, what its owner gave up (destroyed, forgotten, applied elsewhere), and what a stale
        target left that neither runs nor is to be torn down. With '' the item owns nothing that others could.

        Raises:
            LeaseLostError: the guard's lease is another run's.

        """
        ...

    def sweep(self, *, limit: int, rewake_after_ms: int, ttl_ms: int) -> Swept:
        """Ask for what is due, reclaim expired leases, wake lost asks again. Any number may run at once."""
        ...

    def pause(self, reason: str, *, actor: str, advice: str = "", epoch: str = "") -> Paused:
        """Let no target be claimed in the whole fleet, and tell people once; sources are still synced.

        With an epoch a host asks that worked with that one: nothing happens where it is this store's, or where a person
        has resumed the fleet since. Without one it is a person's wish.
        """
        ...

    def resume(self, *, actor: str, reason: str = "") -> bool:
        """Let claims go on and wake what was asked for meanwhile; False: nothing was paused.

        Where hosts had come from another epoch they adopt this store, and every item is asked once.
        """
        ...

    def look_at_pools(self, *, dead_after_ms: int, silent_after_ms: int) -> PoolNews:
        """Tell people, once, of pools in which asks wait that no live worker serves, and of their recovery."""
        ...
