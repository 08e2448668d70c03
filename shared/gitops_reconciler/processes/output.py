"""Reads what a tool writes: split into lines, redacted line by line, passed on, and kept within bounds."""

from __future__ import annotations

import os
from collections import deque
from typing import IO

from gitops_reconciler.processes.base import OnLine
from gitops_reconciler.redaction import Redactor

READ_SIZE = 1 << 16
_LONGEST_SECRET = 4096  # characters at the end of a cut line that may be the beginning of a secret
_MOST_READS_AFTER_THE_END = 32  # a leftover of the tool may hold the pipe and write for ever


class Output:
    """One stream of a tool."""

    def __init__(
        self, name: str, pipe: IO[bytes], *, redactor: Redactor | None, limit: int, on_line: OnLine | None
    ) -> None:
        self.pipe, self.on_line = pipe, on_line
        self.kept, self.raw = Kept(limit), Kept(limit)
        self._name, self._redactor = name, redactor
        self._pending = bytearray()
        self._longest_line = limit + _LONGEST_SECRET
        self._line_is_cut = self._a_line_was_cut = False
        os.set_blocking(pipe.fileno(), False)

    @property
    def is_cut(self) -> bool:
        """Whether a part of the stream was not kept."""
        return self._a_line_was_cut or self.raw.is_cut

    def read(self) -> int | None:
        """Take what is there and return its size: 0 at the end of the stream, None when there is nothing now."""
        try:
            data = os.read(self.pipe.fileno(), READ_SIZE)
        except BlockingIOError:
            return None
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._grow(part)
            self._end_line("\n")
        self._grow(rest)
        return len(data)

    def finish(self) -> None:
        """Take the rest without waiting for more, and close the pipe."""
        for _ in range(_MOST_READS_AFTER_THE_END):
            if not self.read():
                break
        if self._pending:
            self._end_line("")
        self.pipe.close()

    def _grow(self, part: bytes) -> None:
        room = self._longest_line - len(self._pending)
        if len(part) > room:
            self._line_is_cut = self._a_line_was_cut = True
        self._pending += part[:room]

    def _end_line(self, end: str) -> None:
        raw = self._pending.decode("utf-8", "surrogateescape")
        self._pending.clear()
        shown = raw if self._redactor is None else self._redactor.text(raw)
        if self._line_is_cut:
            shown = shown[:-_LONGEST_SECRET]
        self._line_is_cut = False
        self.raw.add(raw + end)
        self.kept.add(shown + end)
        if self.on_line is not None:
            self.on_line(self._name, _valid(shown).removesuffix("\r"))


class Kept:
    """The beginning and the end of a text that may be much too long."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._left_out = 0

    @property
    def is_cut(self) -> bool:
        """Whether something in the middle is missing."""
        return self._left_out > 0 or self._tail_size > self._half

    def add(self, text: str) -> None:
        """Append to the text."""
        room = self._half - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += len(text[:room])
            text = text[room:]
        if text:
            self._tail.append(text)
            self._tail_size += len(text)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._half:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._left_out += gone

    def text(self) -> str:
        """Return all of it, or its two ends with a line between them that says how much is missing."""
        head, tail = "".join(self._head), "".join(self._tail)
        left_out = self._left_out + max(0, len(tail) - self._half)
        if not left_out:
            return head + tail
        return f"{head}\n… {left_out} characters left out …\n{tail[-self._half :]}"


def _valid(text: str) -> str:
    """Return the text with surrogate escapes replaced: what cannot be encoded breaks every log."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
