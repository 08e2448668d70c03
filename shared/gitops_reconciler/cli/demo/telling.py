"""How the demo speaks: each line with the seconds since set-up was done, commands as a person would type them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from gitops_reconciler.cli.output import Cell, Column, Screen, table
from gitops_reconciler.cli.targets import target_table

_INDENT = 10  # columns before what is said


@dataclass(slots=True)
class Step:
    """One step of the story, for the summary."""

    title: str
    goal_seconds: float
    began: float
    ended: float | None = None


@dataclass(slots=True)
class Teller:
    """Writes the story to stdout."""

    screen: Screen = field(default_factory=Screen.of)
    clock: Callable[[], float] = time.monotonic
    steps: list[Step] = field(default_factory=list)
    _zero: float | None = None

    def begin(self) -> None:
        """Count from here."""
        self._zero = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since set-up was done."""
        return 0.0 if self._zero is None else self.clock() - self._zero

    def step(self, title: str, goal_seconds: float) -> None:
        """Begin a step; the goal is when it should have come true, and nothing fails when it takes longer."""
        self._end_step()
        self.steps.append(Step(title, goal_seconds, self.seconds))
        self._write(f"\n{self.screen.paint(f'{len(self.steps)}. {title}', 'bold')}")

    def _end_step(self) -> None:
        if self.steps and self.steps[-1].ended is None:
            self.steps[-1].ended = self.seconds

    def say(self, text: str) -> None:
        """Say what happens."""
        self._tell("", text)

    def command(self, text: str) -> None:
        """Show what a person would type, on one line, so that it can be copied."""
        self._write(f"{self._when()}  {self.screen.paint(f'$ {text}', 'blue')}")

    def true(self, text: str) -> None:
        """Say what came true."""
        self._tell(self.screen.paint("ok", "green") + " ", f"ok {text}")

    def _tell(self, painted: str, text: str) -> None:
        """Write a text that may take several lines; of its beginning there is a painted form."""
        width = 10_000 if self.screen.width is None else max(40, self.screen.width - _INDENT)
        lines = wrap(text, width, break_long_words=False, break_on_hyphens=False)
        plain = f"{painted}{lines[0][3:]}" if painted else lines[0]
        self._write(f"{self._when()}  {plain}")
        for line in lines[1:]:
            self._write(f"{'':{_INDENT}}{line}")

    def _when(self) -> str:
        when = f"{self.seconds:6.1f} s" if self._zero is not None else " " * (_INDENT - 2)
        return self.screen.paint(when, "dim")

    def targets(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Show targets as `gitops targets` does."""
        self.command("gitops targets")
        for line in target_table(items, self._narrower(2)):
            self._write(f"  {line}")

    def summary(self) -> None:
        """Show when each step had come true, beside its goal."""
        self._end_step()
        columns = [Column(title="STEP"), Column(title="DONE AT"), Column(title="GOAL")]
        rows = [
            [Cell(text=step.title), Cell(text=f"{step.ended or 0:.1f} s"), Cell(text=f"{step.goal_seconds:.0f} s")]
            for step in self.steps
        ]
        self._write("")
        for line in table(columns, rows, self.screen):
            self._write(line)

    def _narrower(self, columns: int) -> Screen:
        width = None if self.screen.width is None else max(40, self.screen.width - columns)
        return Screen(width=width, has_colour=self.screen.has_colour)

    def _write(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
