"""The contract of a bench: a name, a goal, and a function that returns its pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.pairs import Measure, Pair


class CannotRunError(Exception):
    """Something that the bench needs is not on this machine; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    pairs: int
    is_short: bool = False
    """A tenth of the work in each round: to see that a bench works, not to read its figures."""

    def work(self, count: int) -> int:
        """Return how many of something a round does."""
        return max(1, count // 10) if self.is_short else count


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One bench."""

    name: str
    about: str
    measure: Measure
    goal: float
    run: Callable[[Effort], Sequence[Pair]]
    """Measures. Raises `CannotRunError` where it can't, and any other error when what was measured was not right."""
