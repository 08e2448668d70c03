"""`python -m tests.bench.run [NAME…]`: run benches, print a table, write the results to a file; for `make bench`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bench.base import Bench, CannotRunError, Effort
from tests.bench.pairs import FEWEST_PAIRS, Result, row_of, table

BENCHES = {"webhook": "webhook", "tick": "tick", "run": "supervised", "terraform": "terraform", "schedule": "schedule"}
"""Name -> module of this package, which is imported when its turn comes."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is told of one bench."""

    cells: tuple[str, ...]
    entry: dict[str, Any]
    has_failed: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 when a bench broke. A goal that is missed is no failure."""
    options = _options(arguments)
    effort = Effort(pairs=options.pairs, is_short=options.short)
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {effort.pairs} pairs")
    rows = [_measured(name, effort) for name in options.names or BENCHES]
    print(table([row.cells for row in rows]))
    entries = json.dumps([row.entry for row in rows], indent=2)
    options.out.write_text(entries + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return int(any(row.has_failed for row in rows))


def _measured(name: str, effort: Effort) -> Row:
    try:
        bench: Bench = importlib.import_module(f"tests.bench.{BENCHES[name]}").BENCH
        print(f"{name}: {bench.about} …", flush=True)
        result = Result(name=name, measure=bench.measure, goal=bench.goal, pairs=bench.run(effort))
    except (CannotRunError, pytest.skip.Exception) as error:  # the tests' own look-up of tools skips
        return Row((name, f"skipped: {error}"), {"name": name, "skipped": str(error)})
    except Exception as error:  # noqa: BLE001  # one broken bench does not take the others along
        traceback.print_exc()
        return Row((name, f"failed: {error}"), {"name": name, "failed": str(error)}, has_failed=True)
    return Row(row_of(result), result.to_json())


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.run", description="Measure against references.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (all of: {', '.join(BENCHES)})")
    parser.add_argument("--pairs", type=int, default=9, help=f"how many, at least {FEWEST_PAIRS} (9)")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="the result file (bench.json)")
    parser.add_argument("--short", action="store_true", help="a tenth of the work a round, any number of pairs")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(BENCHES)):
        parser.error(f"no bench is called '{unknown[0]}' (must be one of: {', '.join(BENCHES)})")
    if options.pairs < (1 if options.short else FEWEST_PAIRS):
        parser.error(f"{options.pairs} pairs say nothing, at least {FEWEST_PAIRS} do")
    return options


if __name__ == "__main__":
    sys.exit(main())
