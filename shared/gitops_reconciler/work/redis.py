"""The work protocol on Redis: each step is one script (lua/), one round trip, timed by Redis' own clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError, ResponseError

from gitops_reconciler import keys
from gitops_reconciler.clock import boottime
from gitops_reconciler.errors import LeaseLostError, StoreUnavailableError
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.redis_text import AnyRedis, as_text
from gitops_reconciler.work.asks import push_arguments, read_pushed, read_requested, request_arguments
from gitops_reconciler.work.base import (
    Ask,
    Cause,
    Claim,
    Completion,
    Guard,
    ItemSpec,
    Mark,
    Paused,
    PoolNews,
    Refusal,
    Renewal,
    Suspension,
    Swept,
)

_SCRIPTS = (
    *("request", "push", "claim", "renew", "complete", "sweep", "register", "forget", "mark", "tree"),
    *("own", "pause", "resume", "pools", "hand_back"),
)
_RESUMED_AT_ONCE = 500

Waker = Callable[[list[tuple[str, str]]], None]
"""Sends a message for each (item, pool); ("", "") stands for the notifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """What the scripts are told with each call."""

    pushes: bool = True
    """The broker lives in the same Redis database: the scripts push the messages themselves."""
    kept_runs: int = 50
    kept_seconds: int = 30 * 24 * 3600
    longest_sweep_pause_ms: int = 15_000

    def header(self) -> str:
        """Return the header of every script call."""
        return json.dumps(
            {
                "push": self.pushes,
                "queue": keys.TICK_QUEUE_PREFIX,
                "task": keys.TICK_TASK,
                "notify_queue": keys.NOTIFY_QUEUE,
                "notify_task": keys.NOTIFY_TASK,
                "longest_pause": self.longest_sweep_pause_ms,
            }
        )


class RedisWork:
    """The six steps over one Redis client (decode_responses=True). Safe to share between threads."""

    def __init__(self, client: AnyRedis, *, options: WorkOptions | None = None, waker: Waker | None = None) -> None:
        """Use this client; `waker` sends messages when the broker is another database."""
        self._client = as_text(client)
        self._options = options or WorkOptions()
        self._header = self._options.header()
        self._waker = waker
        self._scripts = {name: self._client.register_script(keys.script(name)) for name in _SCRIPTS}

    def _call(self, name: str, *arguments: object) -> Any:  # each script has its own answer
        try:
            raw = self._scripts[name](keys=[keys.PREFIX], args=[self._header, *arguments])
        except (RedisError, OSError) as error:
            message = f"redis did not take '{name}': {trouble(error)}"
            raise StoreUnavailableError(message) from error
        if not isinstance(raw, str):
            return raw
        answer = json.loads(raw)
        if answer["wakes"] and self._waker is not None:
            self._waker([(item, pool) for item, pool in answer["wakes"]])
        return answer["result"]

    def register(
        self,
        spec: ItemSpec,
        *,
        first_due_in_ms: int | None,
        guard: Guard | None = None,
        cause: Cause | None = None,
        suspend: Suspension | None = None,
    ) -> bool:
        """Make an item known or change what is known of it, with what goes with that."""
        flat = [part for pair in spec.stored().items() for part in pair]
        due = "" if first_due_in_ms is None else str(first_due_in_ms)
        together: dict[str, Any] = {}
        if cause is not None:
            together["cause"] = {"trigger": cause.trigger.value, "actor": cause.actor}
        if suspend is not None:
            together |= {"suspend": suspend.wanted, "actor": suspend.actor, "reason": suspend.reason}
        refs = json.dumps(list(spec.refs))
        return bool(self._call("register", spec.item, due, refs, _guard(guard), json.dumps(together), *flat))

    def put_tree(self, source: str, documents: Mapping[str, Mapping[str, Any]], *, guard: Guard) -> bool:
        """Replace what the targets of a source share."""
        flat = [part for name, document in documents.items() for part in (name, json.dumps(document, sort_keys=True))]
        return bool(self._call("tree", source, _guard(guard), *flat))

    def forget(self, item: str) -> None:
        """Drop an item with all that is kept of it."""
        self._call("forget", item)

    def mark(self, item: str, mark: Mark, *, actor: str, reason: str = "", guard: Guard | None = None) -> bool:
        """Say something of an item between its runs."""
        return bool(self._call("mark", item, mark.value, actor, reason, _guard(guard)))

    def request(self, items: list[str], cause: Cause) -> list[Ask]:
        """Ask for a tick of each item."""
        return read_requested(items, self._call("request", *request_arguments(items, cause))) if items else []

    def push(self, refs: list[str], cause: Cause, *, delivery: str | None) -> list[Ask] | None:
        """Ask for all items that watch one of the refs."""
        return read_pushed(self._call("push", *push_arguments(refs, cause, delivery)))

    def claim(
        self, item: str, run: str, *, ttl_ms: int, holder: str, pools: tuple[str, ...] = ("*",)
    ) -> Claim | Refusal:
        """Take the lease, or say why not."""
        sent = boottime()
        served = "" if "*" in pools else json.dumps(list(pools))
        told = self._call(
            "claim", item, run, ttl_ms, holder, self._options.kept_runs, self._options.kept_seconds, served
        )
        if isinstance(told, str):
            return Refusal(told)
        return Claim(
            item=item,
            run=run,
            token=int(told["token"]),
            generation=int(told["generation"]),
            kind=told["kind"],
            pool=told["pool"],
            is_wanted=told["desired"] != "absent",
            causes=tuple(
                Cause(trigger=Trigger(cause["trigger"]), actor=cause.get("actor", ""))
                for cause in json.loads(told["causes"])
            ),
            asked=(told["epoch"], int(told["asked"])),
            early_ends=int(told["early_ends"]),
            schedule=json.loads(told["schedule"]),
            deadline_seconds=float(told["deadline_seconds"]),
            stalled_at=told["stalled_at"],
            claimed_at=sent,
        )

    def hand_back(self, item: str) -> bool:
        """Send a message for the one that was taken and leads to no run."""
        return bool(self._call("hand_back", item))

    def renew(self, item: str, token: int, run: str, *, ttl_ms: int) -> Renewal:
        """Prolong our lease."""
        told = self._call("renew", item, token, run, ttl_ms)
        return (Renewal.LOST, Renewal.HELD, Renewal.HELD_ASKED_AGAIN)[int(told)]

    def complete(self, item: str, token: int, run: str, completion: Completion) -> bool:
        """Write the end of the run with its event and release."""
        what = {
            "status": completion.status,
            "next_ask": completion.next_ask.value,
            "due_in_ms": completion.due_in_ms,
            "applied": completion.applied,
            "outputs_digest": completion.outputs_digest,
        }
        flat = [part for pair in completion.record.items() for part in pair]
        what = {name: value for name, value in what.items() if value is not None}
        return bool(self._call("complete", item, token, run, json.dumps(what), *flat))

    def own(self, guard: Guard, resource: str) -> str:
        """Make a resource the item's own, or say whose it is."""
        owner = self._call("own", _guard(guard), resource)
        if owner is False:
            message = f"the lease of '{guard.item}' was lost before it could own '{resource}'"
            raise LeaseLostError(message)
        return str(owner)

    def sweep(self, *, limit: int, rewake_after_ms: int, ttl_ms: int) -> Swept:
        """Ask for what is due, reclaim expired leases, wake lost asks again."""
        told = self._call("sweep", limit, rewake_after_ms, ttl_ms, self._server(), self._options.longest_sweep_pause_ms)
        asked, reclaimed, rewoken, more = (int(number) for number in told)
        return Swept(asked=asked, reclaimed=reclaimed, rewoken=rewoken, more=bool(more))

    def pause(self, reason: str, *, actor: str, advice: str = "", epoch: str = "") -> Paused:
        """Let no target be claimed in the whole fleet, and tell people once."""
        return Paused(self._call("pause", actor, reason, advice, epoch))

    def resume(self, *, actor: str, reason: str = "") -> bool:
        """Let claims go on and wake what was asked for meanwhile.

        Interrupted halfway, the rest is woken by sweeps, which is slower.
        """
        was_paused, after = self._call("resume", actor, reason, "", _RESUMED_AT_ONCE)
        while after:
            _, after = self._call("resume", actor, reason, after, _RESUMED_AT_ONCE)
        return bool(was_paused)

    def look_at_pools(self, *, dead_after_ms: int, silent_after_ms: int) -> PoolNews:
        """Tell people of pools that died, and of those that live again."""
        told = self._call("pools", dead_after_ms, silent_after_ms)
        dead = tuple((pool, message) for pool, message in told["dead"] or ())
        return PoolNews(dead=dead, alive=tuple(told["alive"] or ()))

    def _server(self) -> str:
        """Tell this life of the server from another; empty where the ACL forbids INFO (then only pauses tell a gap)."""
        try:
            return str(self._client.info("server").get("run_id", ""))
        except ResponseError:
            return ""
        except (RedisError, OSError) as error:
            message = trouble(error)
            raise StoreUnavailableError(message) from error


def _guard(guard: Guard | None) -> str:
    return "" if guard is None else json.dumps({"item": guard.item, "token": str(guard.token), "run": guard.run})
