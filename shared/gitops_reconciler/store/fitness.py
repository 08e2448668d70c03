"""Whether a server may hold a fleet: looked at when a role starts, and now and then by beat.

A server that may throw keys away is refused: all that keeps two runs of a target apart lies in keys that expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from gitops_reconciler.errors import SettingsError
from gitops_reconciler.redis_errors import is_final, trouble
from gitops_reconciler.redis_text import TextRedis

OLDEST = (6, 2)
_HARMLESS = "noeviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """What a server says of itself, as far as a fleet minds."""

    version: str
    policy: str
    memory_limit: int
    """Bytes; 0: none."""
    evicted: int
    """Keys that it threw away since its start."""

    @property
    def evicts(self) -> bool:
        """Whether it may throw keys away."""
        return bool(self.memory_limit) and self.policy != _HARMLESS

    @property
    def would_evict(self) -> bool:
        """Whether it might as soon as somebody limits its memory."""
        return not self.memory_limit and self.policy != _HARMLESS

    @property
    def is_too_old(self) -> bool:
        """Whether it lacks commands that the fleet needs."""
        numbers = [int(part) for part in self.version.split(".")[:2] if part.isdecimal()]
        return bool(numbers) and tuple(numbers) < OLDEST


def fitness_of(client: TextRedis) -> Fitness:
    """Ask the server; raises what redis-py raises."""
    found: Mapping[str, Any] = {
        **client.info("server"),
        **client.info("memory"),
        **client.info("stats"),
    }
    return Fitness(
        version=str(found.get("redis_version", "")),
        policy=str(found.get("maxmemory_policy", _HARMLESS)),
        memory_limit=int(found.get("maxmemory", 0)),
        evicted=int(found.get("evicted_keys", 0)),
    )


def eviction_words(fitness: Fitness) -> str:
    """Return what is said of a server that throws keys away."""
    return (
        f"redis throws keys away when its memory is full (maxmemory-policy {fitness.policy}): leases and asks of the "
        "fleet would get lost, and targets be run twice or never (set maxmemory-policy noeviction)"
    )


def check_server(client: TextRedis) -> list[str]:
    """Return what should be said in the log about the fleet's server; one that does not answer yet is waited for.

    Raises:
        SettingsError: this server can't hold a fleet, however long one waits.

    """
    try:
        fitness = fitness_of(client)
    except (RedisError, OSError) as error:
        if is_final(error):
            raise SettingsError(f"GITOPS_REDIS_URL: {trouble(error)}") from error
        if "NOPERM" in str(error) or "no permissions" in str(error):
            return ["this user of redis may not INFO: neither the server's version nor its memory policy were checked"]
        return [f"{trouble(error)}; trying on"]
    if fitness.is_too_old:
        oldest = ".".join(map(str, OLDEST))
        raise SettingsError(f"GITOPS_REDIS_URL: redis is {fitness.version}, {oldest} or later is needed")
    if fitness.evicts:
        raise SettingsError(f"GITOPS_REDIS_URL: {eviction_words(fitness)}")
    if fitness.would_evict:
        policy = f"maxmemory-policy is {fitness.policy}"
        return [f"{policy}: once redis gets a maxmemory, the fleet would refuse to start (set it to noeviction)"]
    return []
