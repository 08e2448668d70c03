"""`python -m tests.chaos`: run a campaign, print what came of it; 1 when a promise was broken. For `make chaos`."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos import campaign, report
from tests.chaos.plan import Breakage, Plan


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one campaign."""
    options = _options(arguments)
    seed = options.seed if options.seed is not None else random.randrange(1 << 31)
    plan = Plan(
        seed=seed,
        fault_seconds=options.minutes * 60,
        targets=options.targets,
        hosts=1 if options.one_host or options.break_ == Breakage.FLOCK else 2,
        breakage=Breakage(options.break_),
        quiet_seconds=options.quiet,
    )
    folder = Path(options.folder or tempfile.mkdtemp(prefix="chaos-")).absolute()
    print(f"chaos: seed {seed}, {options.minutes:g} min of faults, {plan.targets} targets, {os.cpu_count()} CPUs")
    print(f"files: {folder}", flush=True)
    try:
        result = campaign.run(plan, folder)
    except pytest.skip.Exception as error:  # the tests' own look-up of tools skips
        print(f"can't run here: {error}")
        return 2
    for line in report.lines(result):
        print(line)
    failures = report.failures(result)
    report.write_summary(result, folder / "summary.json")
    if failures:
        print(f"BROKEN: {'; '.join(failures)}\nfiles: {folder}\nagain: make chaos CHAOS_SEED={seed}")
        return 1
    print(f"every promise held; seed {seed}")
    if not options.keep and not options.folder:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="A real fleet under faults.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are injected (10)")
    parser.add_argument("--seed", type=int, help="replays the schedule of a campaign")
    parser.add_argument("--targets", type=int, default=200, help="how many (200)")
    parser.add_argument("--quiet", type=float, default=180.0, help="seconds to converge in, after the last fault (180)")
    parser.add_argument("--break", dest="break_", default="none", choices=list(Breakage), help="a protection to remove")
    parser.add_argument("--one-host", action="store_true", help="all workers share a state folder")
    parser.add_argument("--folder", help="where the files go (a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="keep the files of a good campaign, too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
