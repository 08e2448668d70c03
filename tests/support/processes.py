"""Looks at processes from outside: whether one lives, and waiting with a bound."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.clock import Deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceThere(Deadline):
    """Over as soon as a tool has written a file, however slow this machine is."""

    path: Path

    @property
    def is_over(self) -> bool:
        return self.path.exists()

    @property
    def remaining_seconds(self) -> float | None:
        return 0.05

    def sooner(self, seconds: float) -> Deadline:
        return self


def lives(pid: int) -> bool:
    """Whether the process exists and is no zombie (not every pid 1 reaps)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def eventually(holds: Callable[[], bool], *, within: float = 10.0) -> bool:
    """Poll until it holds; False when it never did."""
    give_up = time.monotonic() + within
    while time.monotonic() < give_up:
        if holds():
            return True
        time.sleep(0.01)
    return holds()


def pid_in(path: Path, *, within: float = 10.0) -> int:
    """The pid that a process writes to a file, as soon as it is there."""
    assert eventually(lambda: path.is_file() and path.read_text().endswith("\n"), within=within), f"no pid in {path}"
    return int(path.read_text())
