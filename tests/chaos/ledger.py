"""The files of a campaign, all the checker ever reads: one JSON object a line, each written in one go."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REQUESTS, PUSHES, FAULTS, RECORDS, ITEMS, LEFT, MARKS = (
    "requests.jsonl",
    "pushes.jsonl",
    "faults.jsonl",
    "records.jsonl",
    "items.jsonl",
    "left.jsonl",
    "marks.jsonl",
)
RUNS = "runs.log"


def boot_ns() -> int:
    """Nanoseconds since boot, the clock of every file here."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def wall_ms() -> int:
    """Epoch milliseconds, which the store's records have."""
    return time.time_ns() // 1_000_000


class Ledger:
    """Writes the files; any thread may."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, name: str, **fields: Any) -> None:
        """Append a line to a file."""
        self._write(name, [fields], os.O_APPEND)

    def replace(self, name: str, lines: list[dict[str, Any]]) -> None:
        """Write a file anew."""
        self._write(name, lines, os.O_TRUNC)

    def _write(self, name: str, lines: list[dict[str, Any]], how: int) -> None:
        data = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode()
        fd = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | how, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)


def lines_of(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Read a file back; one that was never written is empty."""
    path = folder / name
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
