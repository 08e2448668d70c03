"""The patrol of a worker: finds what dead runs left on this host, whichever worker they were of, and ends it.

It is for runs whose guard, supervisor and worker died together, so that nobody waits for them (DESIGN section 3,
promise 6). Any number of workers may walk over the same folder: the record's own lock lets one of them act.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.leftovers import Record, end_leftovers
from gitops_reconciler.supervise.procfs import machine, send

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.7
"""From one look to the next. What is found dead is ended at the second look: who is about to act by himself (run
process, waiting worker) has the time between. Both make less than the 2 s by which a lease outlasts the grace: so what
lives of a dead run is gone before another host may begin, even if the lease had not been renewed for as long as a run
goes on without."""

_HOPELESS_SECONDS = 60.0  # another user's process, or one that hangs in the kernel: it keeps the flock
_RECORD = ".run"


class _Condition(Enum):
    LIVING = auto()
    FROZEN = auto()
    DEAD = auto()


class Patrol:
    """Looks at once and each LOOK_SECONDS, in a thread of its own, until it is closed.

    Costs one walk over the folder of locks, and two looks into /proc for each run that lives. Records of another
    machine, container or boot are not touched: the target's next run here decides about them, with its lock taken.
    Keepers that all stay stopped (SIGSTOP) for `frozen_seconds` are killed: no lease covers their run any more.
    """

    def __init__(self, locks: Path, *, grace_seconds: float, frozen_seconds: float) -> None:
        self._locks, self._grace_seconds, self._frozen_seconds = locks, grace_seconds, frozen_seconds
        self._machine = machine()
        self._since: dict[tuple[Path, str, _Condition], float] = {}
        self._at_work: set[Path] = set()
        self._not_before: dict[Path, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._walk, name="patrol", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Look no more. What is just being ended goes on by itself as long as this process does."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _walk(self) -> None:
        pause = 0.0
        while not self._is_over.wait(pause):
            try:
                self._look()
            except OSError as error:  # too many open files, a folder that went away
                _log.warning("leftovers of dead runs could not be looked for: %s", error)
            pause = LOOK_SECONDS

    def _look(self) -> None:
        now = boottime()
        since: dict[tuple[Path, str, _Condition], float] = {}
        for path in _records_below(self._locks):
            record = None if self._is_in_hand(path, now) else _read(path)
            if record is None or record.machine != self._machine:
                continue
            condition = _condition_of(record)
            if condition is _Condition.LIVING:
                continue
            at = since[path, record.run, condition] = self._since.get((path, record.run, condition), now)
            if condition is _Condition.FROZEN and now - at >= self._frozen_seconds:
                _log.warning("the processes that watch a run are frozen, they are killed", extra={"run": record.run})
                _kill_keepers(record)
            elif condition is _Condition.DEAD and at < now:
                self._end(path, record)
        self._since = since

    def _is_in_hand(self, path: Path, now: float) -> bool:
        return path in self._at_work or self._not_before.get(path, 0.0) > now

    def _end(self, path: Path, record: Record) -> None:
        """End one leftover in a thread: a worker that was killed left many, and each may take its grace."""
        self._at_work.add(path)
        threading.Thread(target=self._end_one, args=(path, record), name="leftover", daemon=True).start()

    def _end_one(self, path: Path, record: Record) -> None:
        try:
            lock = path.with_suffix(".lock")
            if end_leftovers(lock, path, self._grace_seconds, is_locked_by_us=False):
                _log.warning("what a dead run left was ended", extra={"run": record.run, "record": path.stem})
                self._not_before.pop(path, None)
            else:
                self._not_before[path] = boottime() + _HOPELESS_SECONDS
        except OSError as error:
            _log.warning("what a dead run left could not be ended: %s", error, extra={"run": record.run})
        finally:
            self._at_work.discard(path)


def _records_below(folder: Path) -> Iterator[Path]:
    todo = [str(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    elif entry.name.endswith(_RECORD):
                        yield Path(entry.path)
        except FileNotFoundError:  # no run yet
            continue


def _read(path: Path) -> Record | None:
    try:
        return Record.parse(path.read_bytes())
    except OSError:  # its run has just ended
        return None


def _condition_of(record: Record) -> _Condition:
    """Say how the keepers are: one that works, guard or supervisor, sees to its run by itself."""
    living = [keeper for keeper in (record.guard, record.supervisor) if keeper.is_alive]
    if not living:
        return _Condition.DEAD
    return _Condition.FROZEN if all(keeper.is_stopped for keeper in living) else _Condition.LIVING


def _kill_keepers(record: Record) -> None:
    for keeper in (record.supervisor, record.guard):
        send(keeper, signal.SIGKILL)
