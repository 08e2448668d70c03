"""The judge: reads the files of a campaign, and nothing else: no store, no process, no code of the product.

What it can know: lines of `runs.log` stand in the order in which they were written. A run is at work at least from its
first line to its last one (a beat each 50 ms tells how long a killed one went on), and whether two were at work at one
moment the things' own locks tell exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.ledger import ITEMS, LEFT, PUSHES, RECORDS, REQUESTS, RUNS, lines_of

OVERLAPS, FALLEN, UNANSWERED, UNCONVERGED, LEFT_OVER = (
    "overlaps",
    "fallen tokens",
    "unanswered requests",
    "unconverged targets",
    "processes left",
)
COLUMNS = (OVERLAPS, FALLEN, UNANSWERED, UNCONVERGED, LEFT_OVER)
_REASONS = {"suspended", "stalled", "stale", "destroyed"}
"""States of a target that are a recorded reason why an ask was not followed by a run."""


@dataclass(slots=True)
class Work:
    """What one run did to its thing."""

    target: str
    run: str
    first: int
    """Number of its first line."""
    last: int
    start_ns: int
    last_ns: int
    state: str | None = None
    """What it made of the thing; None: it was cut off."""
    has_clashed: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """What the store kept of a run."""

    token: int
    generation: int
    started_ms: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Findings by column; none at all is what was promised."""

    findings: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether every column is 0."""
        return not any(self.findings.values())


def check(folder: Path) -> Verdict:
    """Judge a campaign by its files."""
    works = works_of(folder)
    records = records_of(folder)
    by_target: dict[str, list[Work]] = defaultdict(list)
    for work in works:
        by_target[work.target].append(work)
    states = {line["item"]: line["status"] for line in lines_of(folder, ITEMS)}
    return Verdict(
        {
            OVERLAPS: [text for some in by_target.values() for text in _overlaps(some)],
            FALLEN: [text for some in by_target.values() for text in _fallen(some, records)],
            UNANSWERED: list(_unanswered(lines_of(folder, REQUESTS), by_target, records, states)),
            UNCONVERGED: list(_unconverged(lines_of(folder, PUSHES), by_target)),
            LEFT_OVER: [f"{line['name']} {line['pid']}: {line['command']}" for line in lines_of(folder, LEFT)],
        }
    )


def works_of(folder: Path) -> list[Work]:
    """Read what the runs did, in the order in which they began."""
    found: dict[tuple[str, str], Work] = {}
    path = folder / RUNS
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else []):
        word, target, run, pid, at, *rest = line.split(" ")
        key = (run, pid)
        if word == "start":
            found[key] = Work(target, run, number, number, int(at), int(at))
        work = found[key]
        work.last, work.last_ns = number, int(at)
        if word == "clash":
            work.has_clashed = True
        elif word == "stop":
            work.state = rest[0]
    return list(found.values())


def records_of(folder: Path) -> dict[str, Record]:
    """Read what the store kept of the runs, by run."""
    return {
        line["run"]: Record(int(line["token"]), int(line["generation"]), int(line["started_ms"]))
        for line in lines_of(folder, RECORDS)
    }


def _overlaps(works: list[Work]) -> Iterable[str]:
    """Two works of one target that were under way at the same time, each pair once."""
    for index, work in enumerate(works):
        if work.has_clashed:
            yield f"{work.target}: run {work.run} began while the thing was held"
            continue
        for before in works[:index]:
            if before.last > work.first:
                yield f"{work.target}: run {before.run} went on after {work.run} had begun"
                break


def _fallen(works: list[Work], records: Mapping[str, Record]) -> Iterable[str]:
    highest, of = 0, ""
    for work in works:
        record = records.get(work.run)
        if record is None:
            yield f"{work.target}: run {work.run} is not known to the store, nor is its token"
        elif record.token <= highest and work.run != of:
            yield f"{work.target}: token {record.token} of {work.run} after {highest} of {of}"
        elif work.run != of:
            highest, of = record.token, work.run


def _unanswered(
    requests: Iterable[Mapping[str, Any]],
    by_target: Mapping[str, list[Work]],
    records: Mapping[str, Record],
    states: Mapping[str, str],
) -> Iterable[str]:
    """Accepted asks after which no run began: by the generation where the answer told it, else by the claim's time."""
    for request in requests:
        target, generation = request["target"], request["generation"]
        if request["answer"] in _REASONS or states.get(target) in _REASONS:
            continue
        for work in reversed(by_target.get(target, [])):
            record = records.get(work.run)
            if record is None:
                follows = work.start_ns >= request["sent_ns"]
            elif generation is not None:
                follows = record.generation >= generation
            else:
                follows = record.started_ms >= request["sent_ms"]
            if follows:
                break
        else:
            yield f"{target}: asked by {request['way']} at {request['sent_ns']}, generation {generation}"


def _unconverged(pushes: Iterable[Mapping[str, Any]], by_target: Mapping[str, list[Work]]) -> Iterable[str]:
    """Targets whose thing is not, at the end, what was pushed last."""
    wanted: dict[str, str] = {}
    for push in pushes:
        wanted.update(push["states"])
    for target, state in sorted(wanted.items()):
        done = [work for work in by_target.get(target, []) if work.state is not None]
        last = max(done, key=lambda work: work.last, default=None)
        if last is None or last.state != state:
            yield f"{target}: is {last.state if last else 'nothing'}, should be {state}"
