"""One log of many processes: whole lines, each behind the aligned name of who wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

_COLOURS = (36, 33, 35, 32, 34, 31)
_LONGEST_LINE = 32 << 10


@dataclass(slots=True, kw_only=True)
class Lines:
    """Writes to one stream. What can't be written is dropped: nobody to read the log is no reason to stop the fleet."""

    stream: BinaryIO
    names: Sequence[str]
    has_colour: bool
    noise: Mapping[str, re.Pattern[bytes]] = field(default_factory=dict)
    """Lines that nobody needs, by name."""
    _pending: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, data: bytes) -> None:
        """Take a piece of output; its last line is kept back until it is whole."""
        *lines, rest = (self._pending.pop(name, b"") + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        if rest:
            self._pending[name] = rest
        self._write(name, lines)

    def end(self, name: str) -> None:
        """Write what is kept back of a process that has ended."""
        if rest := self._pending.pop(name, b""):
            self._write(name, [rest])

    def say(self, name: str, text: str) -> None:
        """Write something of our own under that name."""
        self._write(name, text.encode("utf-8", "backslashreplace").split(b"\n"))

    def _write(self, name: str, lines: Sequence[bytes]) -> None:
        prefix, noise = self._prefix(name), self.noise.get(name)
        kept = (line.rstrip() for line in lines if not (noise and noise.search(line)))
        text = b"".join(prefix + line + b"\n" for line in kept if line)
        with suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()

    def _prefix(self, name: str) -> bytes:
        text = f"{name.ljust(max(map(len, self.names), default=0))} | "
        if self.has_colour:
            number = list(self.names).index(name) if name in self.names else 0
            text = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{text}\x1b[0m"
        return text.encode()
