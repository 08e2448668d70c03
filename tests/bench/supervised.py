"""Bench `run`: what guard, supervisor and run process add to `true`."""

from __future__ import annotations

from gitops_reconciler.errors import NotBuiltError
from tests.bench.base import Bench, CannotRunError, Effort
from tests.bench.pairs import Measure, Pair
from tests.bench.run_cost import measure

_ROUNDS_A_PAIR = 10


def run(effort: Effort) -> list[Pair]:
    """Start `true` plainly, and as a supervised run until nothing of it is left."""
    try:
        found = measure(effort.pairs * effort.work(_ROUNDS_A_PAIR))
    except NotBuiltError as error:  # supervision is Linux only
        raise CannotRunError(str(error)) from error
    return [Pair(ours=supervised, reference=plain) for plain, supervised in found]


BENCH = Bench(
    name="run",
    about="a supervised run of `true`, against `true`",
    measure=Measure.ADDED,
    goal=0.030,
    run=run,
)
