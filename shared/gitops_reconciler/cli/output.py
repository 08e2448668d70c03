"""What people read: tables that fit the terminal, colour only where someone looks; and JSON for programs."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

_GAP = "  "
_NARROWEST = 12
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "dim": "2", "bold": "1"}
_STYLE_OF_STATUS: Mapping[str, str] = {
    "ready": "green",
    "no_change": "green",
    "changed": "green",
    "failed": "red",
    "lost": "red",
    "aborted": "red",
    "unreachable": "red",
    "stalled": "red",
    "running": "blue",
    "queued": "blue",
    "deleting": "blue",
    "pending": "yellow",
    "skipped": "yellow",
    "stale": "magenta",
    "suspended": "dim",
    "destroyed": "dim",
}
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
SHORT_SHA = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value and how it looks."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; what gives way first when the terminal is too narrow."""

    title: str
    gives_way: bool = False
    """Cut to what is left; of several the last one first."""
    may_go: bool = False
    """Left out where even cutting does not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Where we write: its width (None: no terminal, nothing is cut) and whether it shows colours."""

    width: int | None
    has_colour: bool

    @classmethod
    def of(cls, stream: TextIO | None = None) -> Screen:
        """Return what this stream (stdout) is."""
        stream = stream or sys.stdout
        if not stream.isatty():
            return cls(width=None, has_colour=False)
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return cls(width=shutil.get_terminal_size().columns, has_colour=not plain)

    def paint(self, text: str, style: str) -> str:
        """Return the text in that style where colours are shown."""
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if style and text and self.has_colour else text


def status_cell(status: str) -> Cell:
    """Return a status in its colour."""
    return Cell(text=status, style=_STYLE_OF_STATUS.get(status, ""))


def one_line(text: str) -> str:
    """Return a text of tools or people on one line, with nothing in it that could move the cursor."""
    lines = (
        " ".join("".join(char if char.isprintable() else " " for char in line).split()) for line in text.splitlines()
    )
    return "; ".join(line for line in lines if line)


def width_of(text: str) -> int:
    """Return how many columns a text takes; East Asian letters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def cut(text: str, width: int) -> str:
    """Return the text, ended by an ellipsis where it takes more than this width."""
    if width_of(text) <= width:
        return text
    kept = ""
    for char in text:
        if width_of(kept + char) > width - 1:
            break
        kept += char
    return f"{kept.rstrip()}…"


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], screen: Screen) -> list[str]:
    """Return the lines of a table; empty columns are left out, and what does not fit is cut by the columns' wish."""
    cells = [[Cell(text=one_line(cell.text), style=cell.style) for cell in row] for row in rows]
    shown = [index for index in range(len(columns)) if any(row[index].text for row in cells)]
    widths = {
        index: max(width_of(columns[index].title), *(width_of(row[index].text) for row in cells)) for index in shown
    }
    if screen.width is not None:
        _fit(widths, columns, screen.width)
    title = [Cell(text=columns[index].title, style="dim") for index in widths]
    body = [[row[index] for index in widths] for row in cells]
    return [_line(row, list(widths.values()), screen) for row in [title, *body]]


def _line(row: Sequence[Cell], widths: Sequence[int], screen: Screen) -> str:
    parts = []
    for cell, width in zip(row, widths, strict=True):
        text = cut(cell.text, width)
        parts.append(screen.paint(text, cell.style) + " " * (width - width_of(text)))
    return _GAP.join(parts).rstrip()


def _fit(widths: dict[int, int], columns: Sequence[Column], width: int) -> None:
    """Take away what is too much, in place: from the columns that give way, then whole columns that may go."""

    def excess() -> int:
        return sum(widths.values()) + len(_GAP) * (len(widths) - 1) - width

    for index in [index for index in reversed(widths) if columns[index].gives_way]:
        if excess() > 0:
            widths[index] = max(min(widths[index], _NARROWEST), widths[index] - excess())
    for index in [index for index in reversed(widths) if columns[index].may_go]:
        if excess() > 0:
            del widths[index]
    last = [index for index in widths if columns[index].gives_way]
    if last and excess() < 0:
        widths[last[-1]] += -excess()  # what a column that went left free


def ago(then: str | None, now: datetime | None = None) -> str:
    """Return how long ago an ISO time was, in its largest unit: `12s`, `5m`, `3h`, `2d`; of a coming one `in 5m`."""
    if not then:
        return ""
    seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(then)).total_seconds()
    return span(seconds) if seconds >= 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """Return a length of time in its largest unit."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "0s"


def counts_of(counts: Mapping[str, int] | None) -> str:
    """Return change counts as in `+1 ~2 -0`; nothing where nothing changed, or nobody counted."""
    return "+{added} ~{changed} -{removed}".format(**counts) if counts and any(counts.values()) else ""


def print_body(body: bytes) -> None:
    """Print an answer of the API exactly as it came; a final newline is added where there is none."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """Say something beside the result."""
    print(f"gitops: {text}", file=sys.stderr)
