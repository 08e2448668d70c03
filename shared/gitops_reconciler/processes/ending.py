"""How a command is brought to an end: interrupts that we hear, groups, descendants, and a watcher for our own death."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self

from gitops_reconciler.clock import boottime
from gitops_reconciler.processes.starting import DEVNULL, PIPE, Child, popen

MARK = "GITOPS_COMMAND"
"""Set in the environment of a command, to a value of its own: what left its group and its parents is known by it."""
_TIDY_SECONDS = 1.0  # between SIGTERM and SIGKILL for what a tool left behind
_POLL_SECONDS = 0.01
_WATCH_SCRIPT = """
left=$1 mark=$2
marked() {
  for process in /proc/[0-9]*; do
    if grep -qs "$mark" "$process/environ"; then kill -s "$1" "${process#/proc/}"; fi
  done
}
if read -r group; then
  read -r over && exit 0
  kill -s INT -- "-$group"
  while [ "$left" -gt 0 ] && kill -s 0 -- "-$group"; do sleep 1; left=$((left - 1)); done
  kill -s KILL -- "-$group"
else
  marked INT
  sleep 1
fi
marked KILL
"""  # without a group: we died just when the tool had begun


class Interrupts:
    """Counts SIGINTs while a tool runs, so that no KeyboardInterrupt tears the bookkeeping apart.

    Only in the main thread, and only where SIGINT would raise KeyboardInterrupt: a handler of the program stays. Where
    it is ignored (a job that a shell started with `&`) we go on ignoring it, but the tools shall not inherit that.
    """

    def __init__(self) -> None:
        self.count = 0
        self.wake: int | None = None
        """Becomes readable with each SIGINT."""
        self._writer = -1
        self._before: signal.Handlers | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        before = signal.getsignal(signal.SIGINT)
        if before is signal.default_int_handler:
            self.wake, self._writer = os.pipe()
            os.set_blocking(self.wake, False)
            os.set_blocking(self._writer, False)
            signal.signal(signal.SIGINT, self._heard)
        elif before is signal.SIG_IGN:
            self._before = signal.SIG_IGN
            signal.signal(
                signal.SIGINT, lambda _signal, _frame: None
            )  # what is caught here is at its default after exec
        return self

    def _heard(self, _signal: int, _frame: FrameType | None) -> None:
        self.count += 1
        with suppress(BlockingIOError):
            os.write(self._writer, b"!")

    def swallow(self) -> bool:
        """Make `wake` quiet again; always True."""
        with suppress(BlockingIOError):
            if self.wake is not None:
                os.read(self.wake, 4096)
        return True

    def __exit__(self, *_: object) -> None:
        if self.wake is not None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(self.wake)
            os.close(self._writer)
        elif self._before is not None:
            signal.signal(signal.SIGINT, self._before)


class Watcher:
    """Ends the group of a tool when we are killed: a shell that waits for the end of a pipe which only we hold.

    PDEATHSIG would reach the tool alone and not its children, and needs code of ours between fork and exec.
    """

    def __init__(self, *, mark: str, grace_seconds: float, pass_fds: Sequence[int]) -> None:
        grace = str(max(1, round(grace_seconds)))
        self._shell: Child = popen(
            ["/bin/sh", "-c", _WATCH_SCRIPT, "gitops-watch", grace, f"{MARK}={mark}"],
            cwd=Path("/"),
            env={"PATH": os.defpath},
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            pass_fds=pass_fds,
            new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def watch(self, group: int) -> None:
        """Tell it which group to end; it exists before the tool does, so that there is no moment without it."""
        if self._shell.stdin is not None:
            with suppress(BrokenPipeError):
                os.write(self._shell.stdin.fileno(), f"{group}\n".encode())

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        if self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell.wait()


def end_group(group: int) -> None:
    """Wait until nobody lives in a group that got SIGTERM; SIGKILL after a second. No event tells of that end."""
    kill_at = boottime() + _TIDY_SECONDS
    give_up_at = kill_at + _TIDY_SECONDS
    with suppress(ProcessLookupError, PermissionError):
        while boottime() < give_up_at:
            os.killpg(group, signal.SIGKILL if boottime() >= kill_at else 0)
            members = [process for process in _processes() if process.group == group]
            if members and not any(process.lives for process in members):
                return  # zombies: theirs is to be reaped by pid 1, which not every container's does
            time.sleep(_POLL_SECONDS)


def end_marked(mark: str) -> None:
    """End what a command has started and what left its group, as Ansible's workers do: SIGTERM, a second, SIGKILL."""
    kill_at = boottime() + _TIDY_SECONDS
    give_up_at = kill_at + _TIDY_SECONDS
    told: set[int] = set()
    while boottime() < give_up_at and (marked := _marked(mark)):
        is_late = boottime() >= kill_at
        _signal_all(marked if is_late else marked - told, signal.SIGKILL if is_late else signal.SIGTERM)
        told |= marked
        time.sleep(_POLL_SECONDS)


def kill_marked(mark: str) -> None:
    """SIGKILL to a command and all that it started, as far as it is still there."""
    _signal_all(_marked(mark), signal.SIGKILL)


def _signal_all(processes: Iterable[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _marked(mark: str) -> set[int]:
    """Return the living processes that have the mark in their environment; none where there is no /proc."""
    wanted = f"{MARK}={mark}".encode()
    marked = set()
    for process in _processes():
        with suppress(OSError):  # of another user, or gone
            if process.lives and wanted in Path(f"/proc/{process.pid}/environ").read_bytes():
                marked.add(process.pid)
    return marked


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    state: str
    group: int

    @property
    def lives(self) -> bool:
        return self.state not in {"Z", "X"}


def _processes() -> Iterable[_Process]:
    """Return all processes; none where there is no /proc."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # The second field is the name in parentheses, and may hold spaces and parentheses itself.
            text = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            state, _parent, group, *_ = text.split()
            yield _Process(int(entry.parent.name), state, int(group))
