"""The faults: what each does, to whom, and for how long; all from outside, with signals, sockets, Redis commands."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from gitops_reconciler.clock import boottime
from tests.chaos.fleet import NETWORKS, Fleet
from tests.chaos.ledger import FAULTS, Ledger, boot_ns, wall_ms
from tests.chaos.load import Load
from tests.chaos.processes import ZYGOTE, Chain, Process, Scene, scene
from tests.support.tcp_proxy import TcpProxy

_VICTIM_SECONDS = 4.0
_LOOK_SECONDS = 0.05
_QUEUES = "tick.*"


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of the schedule."""

    number: int
    at: float
    kind: str
    seed: int


@dataclass(slots=True)
class Hit:
    """What a fault did."""

    who: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


_ALL_WHO_WATCH = {"guard", "supervisor", "process"}
_SPARED_SECONDS = 5.0  # within which a leftover is told to end
KILLS: dict[str, tuple[int, tuple[str, ...]]] = {
    "kill worker": (3, ("worker",)),
    "kill zygote": (2, ("zygote",)),
    "kill guard": (2, ("guard",)),
    "kill supervisor": (4, ("supervisor",)),
    "kill run": (3, ("process",)),
    "kill supervisor+run": (10, ("supervisor", "process")),
    "kill guard+supervisor": (3, ("guard", "supervisor")),
    "kill guard+supervisor+run": (4, ("guard", "supervisor", "process")),
    "kill worker+supervisor+run": (2, ("worker", "supervisor", "process")),
    "kill worker+guard+supervisor": (3, ("worker", "guard", "supervisor")),
    "kill worker+guard+supervisor+run": (3, ("worker", "guard", "supervisor", "process")),
}
FREEZES: dict[str, tuple[int, tuple[str, ...]]] = {
    "freeze worker": (1, ("worker",)),
    "freeze zygote": (1, ("zygote",)),
    "freeze guard": (2, ("guard",)),
    "freeze supervisor": (3, ("supervisor",)),
    "freeze run": (2, ("process",)),
    "freeze guard+supervisor": (2, ("guard", "supervisor")),
}
OTHERS = {
    "kill beat": 2,
    "kill receiver": 2,
    "redis kill": 2,
    "redis freeze": 1,
    "network cut": 3,
    "network outage": 1,
    "network slow": 2,
    "network hold": 1,
    "network half-close": 2,
    "network strand": 2,
    "messages doubled": 3,
    "messages dropped": 3,
    "messages shuffled": 1,
    "storm": 3,
}


def schedule(seed: int, seconds: float, faults_a_minute: float) -> list[Fault]:
    """What happens when; the same for the same seed."""
    rng = random.Random(seed)
    weights = {**{name: weight for name, (weight, _) in {**KILLS, **FREEZES}.items()}, **OTHERS}
    kinds, at = sorted(weights), 0.0
    made: list[Fault] = []
    while True:
        at += rng.uniform(0.4, 1.6) * 60.0 / faults_a_minute
        if at >= seconds:
            return made
        (kind,) = rng.choices(kinds, [weights[kind] for kind in kinds])
        made.append(Fault(len(made) + 1, round(at, 2), kind, rng.getrandbits(32)))


@dataclass(slots=True)
class Injector:
    """Injects one fault after another, each in a thread of its own, as some last.

    What is not promised is not done: all who watch over a run die only where a worker of the host is left to look after
    its tools, and that one is spared until it has.
    """

    fleet: Fleet
    load: Load
    ledger: Ledger
    kept: list[tuple[str, str]] = field(default_factory=list)
    """Messages that were seen, to be sent again much later."""
    _spared_until: float = 0.0
    _redis_lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)
    _network_locks: dict[str, threading.Lock] = field(default_factory=lambda: {n: threading.Lock() for n in NETWORKS})

    def run(self, faults: Sequence[Fault]) -> None:
        """Follow the schedule; comes back when the last fault is over."""
        began = boottime()
        for fault in faults:
            time.sleep(max(0.0, began + fault.at - boottime()))
            thread = threading.Thread(target=self._inject, args=(fault,), name=f"fault {fault.number}", daemon=True)
            thread.start()
            self._threads.append(thread)
        for thread in self._threads:
            thread.join()

    def _inject(self, fault: Fault) -> None:
        rng, began = random.Random(fault.seed), [boot_ns()]
        try:
            hit = self._act(fault.kind, rng, began)
        except (RedisError, OSError) as error:  # the store is away by another fault: nothing was hit
            hit = Hit()
            self.ledger.note("skipped.jsonl", n=fault.number, kind=fault.kind, why=f"{type(error).__name__}: {error}")
        if hit.who:
            now_ns, now_ms = boot_ns(), wall_ms()
            begin_ms = now_ms - (now_ns - began[0]) // 1_000_000
            self.ledger.note(
                FAULTS, n=fault.number, kind=fault.kind, hit=hit.who, runs=hit.runs,
                begin_ns=began[0], begin_ms=begin_ms, end_ns=now_ns,
            )  # fmt: skip

    def _act(self, kind: str, rng: random.Random, began: list[int]) -> Hit:
        if kind in KILLS:
            return self._kill(KILLS[kind][1], rng, began)
        if kind in FREEZES:
            return self._freeze(FREEZES[kind][1], rng, began)
        family, _, how = kind.partition(" ")
        acts: dict[str, Callable[[str, random.Random, list[int]], Hit]] = {
            "kill": self._kill_member,
            "redis": self._redis,
            "network": self._network,
            "messages": self._messages,
            "storm": lambda how, rng, began: Hit(self.load.storm(rng)),
        }
        return acts[family](how, rng, began)

    def _victims(self, parts: tuple[str, ...], rng: random.Random) -> tuple[list[Process], list[Chain]]:
        """Return who is hit and whose runs; rather a run that is at its apply than one that is at git."""
        give_up = boottime() + _VICTIM_SECONDS
        while boottime() < give_up:
            now = scene(self.fleet.folder)
            if parts == ("zygote",) and (zygotes := now.named(ZYGOTE)):
                zygote = rng.choice(zygotes)
                return [zygote], [one for one in now.chains() if one.zygote == zygote]
            chains = [one for one in now.chains() if self._may_hit(now, one, parts)]
            chains = [one for one in chains if one.target] or (chains if rng.random() < 0.1 else [])
            if chains:
                chain = rng.choice(chains)
                return [getattr(chain, part) for part in parts], [chain]
            time.sleep(_LOOK_SECONDS)
        return [], []

    def _may_hit(self, now: Scene, chain: Chain, parts: tuple[str, ...]) -> bool:
        victims = [getattr(chain, part) for part in parts]
        if None in victims or ("worker" in parts and boottime() < self._spared_until):
            return False
        return not {*parts} >= _ALL_WHO_WATCH or now.has_worker_besides(victims)

    def _kill(self, parts: tuple[str, ...], rng: random.Random, began: list[int]) -> Hit:
        victims, chains = self._victims(parts, rng)
        if {*parts} >= _ALL_WHO_WATCH:
            self._spared_until = boottime() + _SPARED_SECONDS + self.fleet.plan.grace
        began[0] = boot_ns()
        hit = [str(victim) for victim in victims if victim.send(signal.SIGKILL)]
        return Hit(hit, [chain.run for chain in chains])

    def _freeze(self, parts: tuple[str, ...], rng: random.Random, began: list[int]) -> Hit:
        victims, chains = self._victims(parts, rng)
        began[0] = boot_ns()
        hit = [victim for victim in victims if victim.send(signal.SIGSTOP)]
        if hit:
            time.sleep(self.fleet.plan.ttl + rng.uniform(0.5, 3.0))
        for victim in hit:
            victim.send(signal.SIGCONT)
        return Hit([str(victim) for victim in hit], [chain.run for chain in chains])

    def _kill_member(self, role: str, rng: random.Random, began: list[int]) -> Hit:
        lives = self.fleet.living(role)
        if not lives:
            return Hit()
        victim = rng.choice(lives)
        victim.process.kill()
        return Hit([f"{role}:{victim.pid}"])

    def _redis(self, how: str, rng: random.Random, began: list[int]) -> Hit:
        with self._redis_lock:
            began[0], pid = boot_ns(), self.fleet.redis.pid
            if how == "kill":
                self.fleet.redis.stop(signal.SIGKILL)
                time.sleep(rng.uniform(0.0, 3.0))
                self.fleet.redis.start()
            else:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(rng.uniform(0.5, 4.0))
                os.kill(pid, signal.SIGCONT)
            return Hit([f"redis:{pid}"])

    def _network(self, how: str, rng: random.Random, began: list[int]) -> Hit:
        name = rng.choice(NETWORKS)
        proxy, seconds = self.fleet.proxies[name], rng.uniform(1.0, 6.0)
        with self._network_locks[name]:
            began[0] = boot_ns()
            if how in {"cut", "half-close", "strand"}:
                {"cut": proxy.cut_once, "half-close": proxy.half_close, "strand": proxy.strand}[how]()
            else:
                _disturb(proxy, how, rng, seconds)
            return Hit([name])

    def _messages(self, how: str, rng: random.Random, began: list[int]) -> Hit:
        with self.fleet.store as store:
            queue = self._queue_with_messages(rng)
            if not queue:
                if how == "doubled" and self.kept:
                    name, message = rng.choice(self.kept)
                    store.lpush(name, message)
                    return Hit([f"1 old message of {name}"])
                return Hit()
            began[0] = boot_ns()
            messages: list[str] = store.lrange(queue, 0, 19)
            self.kept = [*self.kept[-200:], *((queue, message) for message in messages)]
            if how == "dropped":
                gone = sum(store.lrem(queue, 1, message) for message in messages)
                return Hit([f"{gone} messages of {queue}"] if gone else [])
            if how == "shuffled":
                rng.shuffle(messages)
                messages = [message for message in messages if store.lrem(queue, 1, message)]
            store.rpush(queue, *messages)
            return Hit([f"{len(messages)} messages of {queue}"])

    def _queue_with_messages(self, rng: random.Random) -> str:
        """Wait a little for a queue that is not empty; a storm is asked for if none is."""
        give_up, has_stormed = boottime() + _VICTIM_SECONDS, False
        with self.fleet.store as store:
            while boottime() < give_up:
                if queues := sorted(store.scan_iter(match=_QUEUES, _type="list")):
                    return str(rng.choice(queues))
                if not has_stormed:
                    has_stormed = True
                    self.load.storm(rng)
                time.sleep(_LOOK_SECONDS / 10)
        return ""


def _disturb(proxy: TcpProxy, how: str, rng: random.Random, seconds: float) -> None:
    if how == "slow":
        proxy.let_pass(delay_seconds=rng.uniform(0.05, 0.5))
    elif how == "hold":
        proxy.hold()
    else:
        proxy.cut()
    time.sleep(seconds)
    if how == "hold" and rng.random() < 0.5:
        proxy.cut_once()  # what was held is lost, else it is delivered late
    else:
        proxy.let_pass()
