"""Takes a protection away from outside, as no setting of the product can, so that the checker shows that it sees it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from redis import Redis
from redis.exceptions import RedisError

from tests.chaos.fleet import Fleet
from tests.chaos.plan import Breakage

_PAUSE_SECONDS = 0.2
_MESSAGE = (
    '{"body":"[[\\"%s\\"],{},{\\"callbacks\\":null,\\"errbacks\\":null,\\"chain\\":null,\\"chord\\":null}]",'
    '"content-encoding":"utf-8","content-type":"application/json","headers":{"lang":"py","task":"gitops.tick","id":"%s",'
    '"root_id":"%s","parent_id":null,"group":null,"retries":0,"timelimit":[null,null],"argsrepr":"","kwargsrepr":"{}",'
    '"origin":"chaos","ignore_result":true},"properties":{"correlation_id":"%s","reply_to":"","delivery_mode":2,'
    '"delivery_info":{"exchange":"","routing_key":"tick.custom"},"priority":0,"delivery_tag":"%s"}}'
)


@contextlib.contextmanager
def broken(fleet: Fleet) -> Iterator[None]:
    """Break what the plan says while the body runs."""
    if fleet.plan.breakage is Breakage.SWEEP:
        fleet.leave_out("beat")
    if fleet.plan.breakage not in {Breakage.LEASE, Breakage.FLOCK}:
        yield
        return
    is_over = threading.Event()
    thread = threading.Thread(target=_take_leases_away, args=(fleet, is_over), name="saboteur", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _take_leases_away(fleet: Fleet, is_over: threading.Event) -> None:
    """Delete the lease of every run, and invite the next worker to take the target."""
    number = 0
    while not is_over.wait(_PAUSE_SECONDS):
        with contextlib.suppress(RedisError, OSError), fleet.store as store:
            for key in store.scan_iter(match="{gitops}:lease:default/*"):
                number += 1
                _invite(store, str(key), number)


def _invite(store: Redis, key: str, number: int) -> None:
    if store.delete(key):
        mark = f"sabotage-{number}"
        store.lpush("tick.custom", _MESSAGE % (key.partition(":lease:")[2], mark, mark, mark, mark))
