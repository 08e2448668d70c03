"""The names of all Redis keys, and the scripts that write them. One prefix, one hash slot."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

PREFIX = "{gitops}"

EPOCH = f"{PREFIX}:epoch"
"""Random id of this store's history; workers keep it on disk and notice a store that was emptied or swapped."""
PAUSED = f"{PREFIX}:paused"
"""Why no target is claimed, since when and by whom (JSON); absent in normal times."""
ESTRANGED = f"{PREFIX}:estranged"
"""Set: the epochs that hosts came with which worked with another store, until a person resumes the fleet."""
ADOPTED = f"{PREFIX}:adopted"
"""Set: the epochs whose hosts go on with this store, as a person has said by resuming."""
ITEMS = f"{PREFIX}:items"
"""Sorted set, score 0: every target and source, in the order of their names."""
DUE = f"{PREFIX}:due"
"""Sorted set: item -> epoch ms of its next due time."""
QUEUED = f"{PREFIX}:queued"
"""Sorted set: item -> epoch ms at which its last message went out."""
LEASES = f"{PREFIX}:leases"
"""Sorted set: item -> epoch ms at which its lease was to end when claimed; renewals prolong the lease key alone."""
ASKS = f"{PREFIX}:asks"
"""Hash: repository key -> how often it was asked for; tells whether a fetch covers an ask."""
EVENTS = f"{PREFIX}:events"
"""Stream, capped: what happened, written by the scripts that cause it."""
QUEUED_IN = f"{PREFIX}:queued_in"
"""Hash: pool -> how many items wait for a message of its queue."""
UNSERVED = f"{PREFIX}:unserved"
"""Hash: pool in which items wait -> epoch ms since which no live worker was seen to serve it."""
DEAD_POOLS = f"{PREFIX}:dead_pools"
"""Hash: pool that was said to be dead -> its oldest ask (JSON)."""
ALERTS = f"{PREFIX}:alerts"
"""Stream, capped: the events that people must hear of; ordinary ends of runs never push them out."""
POOLS = f"{PREFIX}:pools"
"""Set of the pools that items want."""
SWEPT = f"{PREFIX}:swept"
"""Hash: when the last sweep was, and on which server."""
GAP_UNTIL = f"{PREFIX}:gap_until"
"""Epoch ms before which no expired lease is taken over; expires by itself."""
ASKING_ALL = f"{PREFIX}:asking_all"
"""Name of the item up to which all were asked for after a restart of Redis; there only until all of them were."""
OWNERS = f"{PREFIX}:owners"
"""Hash: what a target really owns and no other may (state address, stack, project@host) -> its item."""
SEQUENCE = f"{PREFIX}:seq"
"""Counter for message ids."""
SOURCES = f"{PREFIX}:sources"
"""Hash: source name -> its registration (JSON)."""
TOKENS = f"{PREFIX}:tokens"
"""Hash: token id -> hash, name, role and times (JSON)."""
WORKERS = f"{PREFIX}:workers"
"""Hash: worker name -> pools, slots, last sign of life (JSON)."""
DELIVERIES = f"{PREFIX}:deliveries"
"""Hash: webhook endpoint -> last accepted and last rejected delivery (JSON)."""
DEAD_LETTERS = f"{PREFIX}:dead_letters"
"""Stream, capped: alerts that no channel took."""
FLOWER = f"{PREFIX}:flower"
"""There, and expiring, while Flower runs: only then do workers send task events."""

TICK_TASK = "gitops.tick"
NOTIFY_TASK = "gitops.notify"
TICK_QUEUE_PREFIX = "tick."
NOTIFY_QUEUE = "notify"
NOTIFIER_GROUP = "notifier"


SOURCE_PREFIX = "source:"
"""How the names of sources' work items begin; targets are named `source/name`."""


def source_item(source: str) -> str:
    """Return the work item of a source's sync."""
    return f"{SOURCE_PREFIX}{source}"


def notifier_group(channel: str) -> str:
    """Return the consumer group in which one channel reads the events, so that none waits for another."""
    return f"{NOTIFIER_GROUP}:{channel}"


def notifier_lock(channel: str) -> str:
    """Return the mark of whoever drains a channel just now, expiring."""
    return f"{PREFIX}:notifier:{channel}"


def item(name: str) -> str:
    """Return the hash of an item: protocol fields, status, registration."""
    return f"{PREFIX}:item:{name}"


def lease(name: str) -> str:
    """Return the lease of an item: `token:run`, expiring."""
    return f"{PREFIX}:lease:{name}"


def causes(name: str) -> str:
    """Return the list of causes that gathered since the last claim, bounded."""
    return f"{PREFIX}:causes:{name}"


def run(run_id: str) -> str:
    """Return the record of a run, a hash with an expiry."""
    return f"{PREFIX}:run:{run_id}"


def runs(name: str) -> str:
    """Return the sorted set of an item's runs by their tokens, which rise, bounded."""
    return f"{PREFIX}:runs:{name}"


def watch(ref: str) -> str:
    """Return the set of items that a push to `repository key#full ref` asks for."""
    return f"{PREFIX}:watch:{ref}"


def seen(delivery: str) -> str:
    """Return the mark of a webhook delivery that was accepted, expiring."""
    return f"{PREFIX}:seen:{delivery}"


def marker(name: str) -> str:
    """Return the marker of a target: the hash its backend applied last."""
    return f"{PREFIX}:marker:{name}"


def tree(source: str) -> str:
    """Return the hash of a source's manifests and providerconfigs: `type/kind/name` -> document (JSON)."""
    return f"{PREFIX}:tree:{source}"


@cache
def script(name: str) -> str:
    """Return the text of a Lua script, with the part that all of them share in front."""
    folder = files("gitops_reconciler") / "lua"
    return "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", name))
