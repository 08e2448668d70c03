"""Bench `run`: what guard, supervisor and run process add to `true`."""

from __future__ import annotations

from tests.bench.base import Bench, CannotRunError, Effort
from tests.bench.pairs import Measure, Pair


def run(effort: Effort) -> list[Pair]:
    """Start `true` plainly, and as a supervised run until nothing of it is left."""
    try:
        from tests.bench.run_cost import measure
    except ImportError as error:
        raise CannotRunError(str(error)) from error
    rounds = effort.work(10)
    found = measure(effort.pairs * rounds)
    return [Pair(ours=supervised, reference=plain) for plain, supervised in found]


BENCH = Bench(
    name="run",
    about="a supervised run of `true`, against `true`",
    measure=Measure.ADDED,
    goal=0.030,
    run=run,
)
