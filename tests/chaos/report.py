"""What a person reads of a campaign."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.chaos.campaign import Result
from tests.chaos.checker import works_of
from tests.chaos.handovers import figures, survivals
from tests.chaos.ledger import FAULTS, RECORDS, REQUESTS, lines_of

_SHOWN = 5


def lines(result: Result) -> Iterator[str]:
    """The report, line by line."""
    folder, plan = result.folder, result.plan
    faults = Counter(line["kind"] for line in lines_of(folder, FAULTS))
    ways = Counter(line["way"] for line in lines_of(folder, REQUESTS))
    states = Counter(line["state"] for line in lines_of(folder, RECORDS))
    works = works_of(folder)
    yield f"faults injected      {result.faults}"
    yield from (f"  {count:4} {kind}" for kind, count in sorted(faults.items()))
    yield f"requests accepted    {ways.total()} ({_counted(ways)})"
    yield f"runs                 {states.total()} ({_counted(states)})"
    yield f"at work on a thing   {len(works)}, cut off {sum(work.state is None for work in works)}"
    yield f"quiet after          {result.quiet_seconds:.0f} s"
    calm = [one for one in result.handovers if not one.is_disturbed]
    more = f"{len(result.handovers) - len(calm)} more while Redis was away, the holder frozen or lost twice"
    free, again = figures(one.free_seconds for one in calm), figures(one.seconds for one in calm)
    yield f"free again           {free} (p95 at most {plan.free_bound:g} s; {more})"
    yield f"at work again        {again} (p95 at most {plan.handover_bound:g} s)"
    longest = max(survivals(folder), default=0.0)
    yield f"work went on          at most {longest:.1f} s after its supervisor was killed"
    for column, found in result.verdict.findings.items():
        yield f"{column:20} {len(found)}"
        yield from (f"  {text}" for text in found[:_SHOWN])


def failures(result: Result) -> list[str]:
    """Return what of this campaign breaks a promise."""
    found = [f"{column}: {len(texts)}" for column, texts in result.verdict.findings.items() if texts]
    calm = [one for one in result.handovers if not one.is_disturbed]
    for name, seconds, bound in (
        ("free again", [one.free_seconds for one in calm], result.plan.free_bound),
        ("at work again", [one.seconds for one in calm], result.plan.handover_bound),
    ):
        if (p95 := figures(seconds).p95) > bound:
            found.append(f"{name}: p95 {p95:.1f} s > {bound:g} s")
    return found


def write_summary(result: Result, path: Path) -> None:
    """Write the figures for programs."""
    calm = [one for one in result.handovers if not one.is_disturbed]
    summary = {
        "seed": result.plan.seed,
        "faults": result.faults,
        "columns": {column: len(found) for column, found in result.verdict.findings.items()},
        "free_again": asdict(figures(one.free_seconds for one in calm)),
        "at_work_again": asdict(figures(one.seconds for one in calm)),
    }
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))
