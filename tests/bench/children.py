"""Processes of a bench: started with a clean environment, ended with the block, and quoted when they die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
_START_SECONDS = 60.0
_END_SECONDS = 15.0
_QUOTED = 3000


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return this process' environment without any setting of the product but these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GITOPS_", "GRID_"))}
    return {**inherited, **settings, "PYTHONPATH": str(ROOT)}


@dataclass(frozen=True, slots=True)
class Child:
    """A running module of this package."""

    name: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def require_life(self) -> None:
        """Raise with the end of its log when it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.quoted()}")

    def quoted(self) -> str:
        """Return the end of what it logged."""
        self.log.seek(0)
        return self.log.read()[-_QUOTED:].decode("utf-8", "replace")

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Poll until it holds; raises when the child ends first or takes too long."""
        give_up = time.monotonic() + _START_SECONDS
        while not holds():
            self.require_life()
            if time.monotonic() > give_up:
                raise TimeoutError(f"{self.name} was not ready after {_START_SECONDS:g} s: {self.quoted()}")
            time.sleep(0.02)


@contextlib.contextmanager
def running(module: str, *arguments: str, settings: Mapping[str, str], pass_fds: Sequence[int] = ()) -> Iterator[Child]:
    """A module of this package as a process, whose output goes to a file of its own."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.bench.{module}", *arguments],
            cwd=ROOT, env=environment(settings), stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=pass_fds,
        )  # fmt: skip
        try:
            yield Child(module, process, log)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
