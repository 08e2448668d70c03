"""`python -m tests.chaos.proof`: takes one protection away after another and shows that the checker sees it.

1 when a fleet without a protection looks well, or when the flock alone does not keep the runs of one host apart.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import campaign
from tests.chaos.checker import OVERLAPS, UNANSWERED, UNCONVERGED
from tests.chaos.plan import Breakage, Plan

_FAULT_SECONDS = 25.0
_TARGETS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One protection less, and what must follow."""

    about: str
    breakage: Breakage
    hosts: int
    seen_in: tuple[str, ...] = ()
    """Columns of which one must not be 0."""
    not_seen_in: tuple[str, ...] = ()
    """Columns that must be 0 all the same."""


CASES = (
    Case(about="leases vanish, two hosts", breakage=Breakage.LEASE, hosts=2, seen_in=(OVERLAPS,)),
    Case(about="leases vanish, one host", breakage=Breakage.LEASE, hosts=1, not_seen_in=(OVERLAPS,)),
    Case(about="leases vanish, one host, no flock", breakage=Breakage.FLOCK, hosts=1, seen_in=(OVERLAPS,)),
    Case(about="nobody sweeps", breakage=Breakage.SWEEP, hosts=2, seen_in=(UNANSWERED, UNCONVERGED)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.proof", description=__doc__)
    parser.add_argument("--seed", type=int, default=147, help="of every campaign (147)")
    seed = parser.parse_args(arguments).seed
    held = [_holds(case, seed) for case in CASES]
    return int(not all(held))


def _holds(case: Case, seed: int) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="chaos-proof-"))
    plan = Plan(
        seed=seed,
        fault_seconds=_FAULT_SECONDS,
        targets=_TARGETS,
        hosts=case.hosts,
        breakage=case.breakage,
        quiet_seconds=20.0,
    )
    findings = campaign.run(plan, folder / "chaos").verdict.findings
    is_seen = not case.seen_in or any(findings[column] for column in case.seen_in)
    holds = is_seen and not any(findings[column] for column in case.not_seen_in)
    told = ", ".join(f"{column} {len(found)}" for column, found in findings.items())
    print(f"{'as it must be' if holds else 'WRONG':14} {case.about}: {told}", flush=True)
    if holds:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"files: {folder}")
    return holds


if __name__ == "__main__":
    sys.exit(main())
