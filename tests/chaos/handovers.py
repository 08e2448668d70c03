"""How long a target waits for its next run once supervisor and run process were killed in the middle of their work.

Two figures: until the store gave the dead run up, so that the target was free and asked for, and until its next run was
at work. The second has in it what all that was asked for before took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.checker import Work, works_of
from tests.chaos.ledger import FAULTS, RECORDS, lines_of

_KILLS_OF_BOTH = "supervisor+run"
_AWAY = {"redis kill", "redis freeze", "network outage", "network hold"}
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Handover:
    """One hand-over."""

    kind: str
    target: str
    run: str
    seconds: float
    """From the kill to the first line of the next run."""
    free_seconds: float
    """From the kill to the record of the loss."""
    is_disturbed: bool
    """Redis was down or out of reach meanwhile, the holder frozen, or the run before it lost as well (a backoff)."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A spread of seconds."""

    count: int
    p50: float
    p95: float
    longest: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f} s, p95 {self.p95:.1f} s, max {self.longest:.1f} s of {self.count}"


def handovers(folder: Path, *, gap_seconds: float) -> list[Handover]:
    """Measure all; `gap_seconds` after Redis started again nobody may take over, so they belong to its absence."""
    works, faults = works_of(folder), list(lines_of(folder, FAULTS))
    records = sorted(lines_of(folder, RECORDS), key=lambda line: int(line["started_ms"]))
    lost = {line["run"]: int(line["ended_ms"]) for line in records if line["state"] == "lost"}
    lost_again = _lost_again(records)
    of_run = {work.run: work for work in works}
    by_target: dict[str, list[Work]] = defaultdict(list)
    for work in works:
        by_target[work.target].append(work)
    made = []
    for fault in faults:
        hit = of_run.get(next(iter(fault["runs"]), ""))
        if not fault["kind"].endswith(_KILLS_OF_BOTH) or hit is None or hit.run not in lost:
            continue
        later = [work for work in by_target[hit.target] if work.run != hit.run]
        end = min((work.start_ns for work in later if work.start_ns > fault["begin_ns"]), default=None)
        if end is not None:
            is_away = any(_disturbs(other, fault, end, gap_seconds) for other in faults)
            is_disturbed = is_away or hit.run in lost_again
            free = (lost[hit.run] - fault["begin_ms"]) / 1000
            seconds = (end - fault["begin_ns"]) / _NS
            made.append(Handover(fault["kind"], hit.target, hit.run, seconds, free, is_disturbed))
    return made


def _lost_again(records: Iterable[dict[str, Any]]) -> set[str]:
    """Runs that were lost directly after another lost one of their target: by design these wait for a backoff."""
    found, last = set(), dict[str, str]()
    for record in records:
        if record["state"] == last.get(record["item"]) == "lost":
            found.add(record["run"])
        last[record["item"]] = record["state"]
    return found


def _disturbs(other: dict[str, Any], fault: dict[str, Any], end: int, gap_seconds: float) -> bool:
    """Whether Redis was down or out of reach meanwhile, or the holder frozen. A lost connection alone is no excuse."""
    if other["n"] == fault["n"]:
        return False
    gap = int(gap_seconds * _NS) if other["kind"] == "redis kill" else 0
    is_meanwhile = bool(other["begin_ns"] <= end and other["end_ns"] + gap >= fault["begin_ns"])
    is_frozen_too = other["kind"].startswith("freeze") and bool(set(other["runs"]) & set(fault["runs"]))
    return is_meanwhile and (other["kind"] in _AWAY or is_frozen_too)


def figures(seconds: Iterable[float]) -> Figures:
    """Return the spread; of nothing it is 0."""
    ordered = sorted(seconds)
    if not ordered:
        return Figures(0, 0.0, 0.0, 0.0)
    return Figures(len(ordered), _quantile(ordered, 0.5), _quantile(ordered, 0.95), ordered[-1])


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of all does not exceed (nearest rank)."""
    rank = max(1, -(-len(ordered) * round(share * 100) // 100))
    return ordered[rank - 1]


def survivals(folder: Path) -> list[float]:
    """How long each thing was still worked on after the supervisor of its run was killed, in seconds."""
    works = {work.run: work for work in works_of(folder)}
    made = []
    for fault in lines_of(folder, FAULTS):
        work = works.get(next(iter(fault["runs"]), ""))
        if fault["kind"].startswith("kill") and "supervisor" in fault["kind"] and work is not None:
            made.append(max(0.0, (work.last_ns - fault["begin_ns"]) / _NS))
    return made
