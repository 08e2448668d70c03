"""Interleaved pairs and what is told of them: A B A B …, so that a busy moment of the machine hits both.

Each pair gives one value, a ratio or added seconds; the result is the median of these values. Nothing here judges a
clock: a goal that is missed is reported, not raised.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

FEWEST_PAIRS = 7


class Measure(StrEnum):
    """How a pair is compared."""

    RATIO = "ratio"
    """Ours over the reference, both rates: more is better."""
    ADDED = "added_seconds"
    """Ours less the reference, both seconds: less is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One value of ours and one of the reference, measured one after the other."""

    ours: float
    reference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the pairs of one bench say."""

    name: str
    measure: Measure
    goal: float
    pairs: Sequence[Pair]

    @property
    def values(self) -> list[float]:
        """One value a pair."""
        if self.measure is Measure.RATIO:
            return [pair.ours / pair.reference for pair in self.pairs]
        return [pair.ours - pair.reference for pair in self.pairs]

    @property
    def value(self) -> float:
        """The median of the pairs' values, which a drift of the machine over the run does not move."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value >= self.goal if self.measure is Measure.RATIO else self.value <= self.goal

    @property
    def medians(self) -> dict[str, float]:
        """The medians of both sides: rates for a ratio, else seconds."""
        return {
            "ours": statistics.median(pair.ours for pair in self.pairs),
            "reference": statistics.median(pair.reference for pair in self.pairs),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the bench's entry of the result file."""
        return {
            "name": self.name,
            self.measure.value: self.value,
            "medians": self.medians,
            "n": len(self.pairs),
            "goal": self.goal,
            "met": self.met,
        }


def interleaved(
    ours: Callable[[], float], reference: Callable[[], float], pairs: int, *, warm_ups: int = 1
) -> list[Pair]:
    """Measure both in turns, so many times, after rounds that are not counted.

    Each call returns its own rate or seconds, so that what it prepares is not measured. Garbage is collected between
    the calls and not in them.
    """
    found = []
    for _ in range(warm_ups + pairs):
        one = _undisturbed(ours)
        found.append(Pair(ours=one, reference=_undisturbed(reference)))
    return found[warm_ups:]


def _undisturbed(measure: Callable[[], float]) -> float:
    gc.collect()
    gc.disable()
    try:
        return measure()
    finally:
        gc.enable()


HEADINGS = ("bench", "ours", "reference", "result", "of the pairs", "goal", "n", "met")


def row_of(result: Result) -> tuple[str, ...]:
    """Return the cells of the table's line for a result."""
    shown, side = (_ratio, _rate) if result.measure is Measure.RATIO else (_added, _milliseconds)
    sign = "≥" if result.measure is Measure.RATIO else "≤"
    medians, values = result.medians, result.values
    return (
        result.name,
        side(medians["ours"]),
        side(medians["reference"]),
        shown(result.value),
        f"{shown(min(values))} … {shown(max(values))}",
        f"{sign} {shown(result.goal)}",
        str(len(values)),
        "yes" if result.met else "no",
    )


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the rows below their headings; a row with fewer cells is text after a name."""
    every = [HEADINGS, *rows]
    full = [row for row in every if len(row) == len(HEADINGS)]
    widths = [max(len(row[column]) for row in full) for column in range(len(HEADINGS))]
    widths[0] = max(len(row[0]) for row in every)
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in every)
    return "\n".join(line.rstrip() for line in lines)


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _rate(value: float) -> str:
    return f"{value:,.0f}/s"


def _added(seconds: float) -> str:
    return f"{1000 * seconds:+.1f} ms"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"
