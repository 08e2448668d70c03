"""One campaign from its first commit to its verdict."""

from __future__ import annotations

import contextlib
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from gitops_reconciler import keys
from tests.chaos.breaking import broken
from tests.chaos.checker import Verdict, check
from tests.chaos.faults import Injector, schedule
from tests.chaos.fleet import Fleet, running_fleet, wait_until_ready
from tests.chaos.handovers import Handover, handovers
from tests.chaos.ledger import FAULTS, ITEMS, LEFT, MARKS, RECORDS, Ledger, boot_ns, lines_of
from tests.chaos.load import Load
from tests.chaos.plan import Breakage, Plan
from tests.chaos.processes import scene
from tests.chaos.world import World

_START_SECONDS = 180.0
_LOOK_SECONDS = 2.0
_PERSON_AFTER_SECONDS = 8.0
_LEFT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a campaign."""

    plan: Plan
    folder: Path
    verdict: Verdict
    handovers: list[Handover]
    faults: int
    quiet_seconds: float


def run(plan: Plan, folder: Path) -> Result:
    """Run a campaign in an empty folder, in which its files stay."""
    (folder / "things").mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(asdict(plan)), encoding="utf-8")
    ledger, world = Ledger(folder), World.create(folder / "repositories", plan)
    with running_fleet(folder, plan, world) as fleet:
        fleet.start()
        wait_until_ready(fleet, world, _START_SECONDS)
        load = Load(fleet, world, ledger, random.Random(plan.seed + 2))
        with broken(fleet):
            _disturb(plan, fleet, load, ledger)
            quiet = _wait_for_quiet(fleet, load, world, ledger)
        ledger.note(MARKS, mark="stopping", at_ns=boot_ns())
        fleet.stop()
        _write_down_the_store(fleet, ledger)
        _write_down_what_is_left(fleet, ledger)
    return Result(
        plan=plan,
        folder=folder,
        verdict=check(folder),
        handovers=handovers(folder, gap_seconds=plan.ttl),
        faults=sum(1 for _ in lines_of(folder, FAULTS)),
        quiet_seconds=quiet,
    )


def _disturb(plan: Plan, fleet: Fleet, load: Load, ledger: Ledger) -> None:
    ledger.note(MARKS, mark="faults begin", at_ns=boot_ns())
    load.start()
    Injector(fleet, load, ledger).run(schedule(plan.seed, plan.fault_seconds, plan.faults_a_minute))
    ledger.note(MARKS, mark="faults end", at_ns=boot_ns())
    load.stop()


def _wait_for_quiet(fleet: Fleet, load: Load, world: World, ledger: Ledger) -> float:
    """Wait until the checker has nothing to say and no run is under way; a person asks for what stalled meanwhile."""
    began, asked = time.monotonic(), set[str]()
    while (waited := time.monotonic() - began) < fleet.plan.quiet_seconds:
        with contextlib.suppress(RedisError, OSError):
            is_idle, stalled = _write_down_the_store(fleet, ledger)
            if is_idle and check(fleet.folder).is_good:
                break
            if waited > _PERSON_AFTER_SECONDS and fleet.plan.breakage is Breakage.NONE:
                for target in world.targets:
                    if target.item in stalled - asked:
                        load.ask_api(target, 0, way="person")
                asked |= stalled
        time.sleep(_LOOK_SECONDS)
    return time.monotonic() - began


def _write_down_the_store(fleet: Fleet, ledger: Ledger) -> tuple[bool, set[str]]:
    """Copy what the store knows of runs and items into files; answers whether it is idle, and what is stalled."""
    with fleet.store as store:
        runs = [_record(store.hgetall(key)) for key in store.scan_iter(match=keys.run("*"), count=1000)]
        names = [str(name) for name in store.zrange(keys.ITEMS, 0, -1)]
        items = [{"item": name, "status": store.hget(keys.item(name), "status") or ""} for name in names]
        is_idle = not store.zcard(keys.QUEUED) and not store.zcard(keys.LEASES)
    ledger.replace(RECORDS, runs)
    ledger.replace(ITEMS, items)
    return is_idle, {item["item"] for item in items if item["status"] == "stalled"}


def _record(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": found.get("run", ""),
        "item": found.get("item", ""),
        "token": found.get("token", "0"),
        "generation": found.get("generation", "0"),
        "started_ms": found.get("started_at", "0"),
        "ended_ms": found.get("ended_at", "0"),
        "waited_ms": found.get("waited_ms", "0"),
        "state": found.get("state", ""),
        "reason": found.get("reason", ""),
        "message": found.get("message", "")[:300],
    }


def _write_down_what_is_left(fleet: Fleet, ledger: Ledger) -> None:
    """Note every process of the campaign that still lives some time after the last role has ended."""
    give_up = time.monotonic() + _LEFT_SECONDS
    while (left := scene(fleet.folder).processes) and time.monotonic() < give_up:
        time.sleep(0.2)
    ledger.replace(LEFT, [{"pid": one.pid, "name": one.name, "command": one.command} for one in left.values()])
