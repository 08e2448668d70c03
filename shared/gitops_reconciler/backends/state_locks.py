"""Whose lock is it? Notes of this host on the commands that lock a state, and what they prove of a lock left behind.

A note is a file that lies there while its command runs, locked (flock) by the command and by all that it started: once
that lock is free, the kernel says that none of them lives. Its window is from before the engine's start to the moment
for which the engine itself says that it held the state's lock. A state has one lock, so one that was made within the
window by the same user and host is the note's own. See docs/decisions/0005-engine-locks.md, also for what stays open.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from gitops_reconciler.processes.host import Host, strangers

_CREATED = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d)(?P<part>\.\d+)?(?: \+0000 UTC|Z)")
_DRAFT, _NOTE = ".draft", ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A state's lock, as the engine describes it to who was refused."""

    id: str
    who: str = ""
    """`user@host`."""
    operation: str = ""
    created: str = ""
    path: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Lock:
        """Read it from the fields of the engine's message."""
        known = {name.lower(): value for name, value in fields.items()}
        return cls(**{name: known[name] for name in ("id", "who", "operation", "created", "path") if name in known})

    @property
    def created_at(self) -> datetime | None:
        """When its holder began to ask for it, by that host's clock; None when that can't be read."""
        match = _CREATED.match(self.created)
        if match is None:
            return None
        moment = datetime.fromisoformat(f"{match['day']}T{match['time']}+00:00")
        return moment.replace(microsecond=int((match["part"] or ".0")[1:7].ljust(6, "0")))

    def __str__(self) -> str:
        """Return who, since when, doing what, and its id."""
        details = [self.operation or "unknown operation", f"lock id {self.id}", *([self.path] if self.path else [])]
        return f"{self.who or 'somebody unknown'} since {self.created or 'an unknown time'} ({', '.join(details)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is known of one command."""

    run: str
    """Empty outside the fleet."""
    pid: int
    host: Host
    started_at: datetime
    held_at: datetime | None = None
    """When the engine spoke first of what it does only with the lock held, by its own timestamp."""

    def to_json(self) -> bytes:
        """Return it as it is written."""
        times = {name: at.isoformat() for name in ("started_at", "held_at") if (at := getattr(self, name))}
        return json.dumps({**asdict(self), "held_at": None, **times}).encode()

    @classmethod
    def parse(cls, text: bytes) -> Note | None:
        """Return what was written; None when it is no note."""
        try:
            values: dict[str, Any] = json.loads(text)
            held = values["held_at"]
            times = {
                "started_at": datetime.fromisoformat(values["started_at"]),
                "held_at": datetime.fromisoformat(held) if held else None,
            }
            return cls(**{**values, "host": Host(**values["host"]), **times})
        except (ValueError, TypeError, KeyError):
            return None

    def held(self, lock: Lock) -> bool:
        """Whether the lock was made before this command is known to have held it, and not before it began."""
        made, held = lock.created_at, self.held_at
        return made is not None and held is not None and self.started_at <= made <= held

    def __str__(self) -> str:
        """Return who it was."""
        return f"run {self.run}" if self.run else f"process {self.pid}"


@dataclass(slots=True)
class Holding:
    """The note of a command while it runs; without a file it does nothing."""

    note: Note
    path: Path | None = None
    fd: int | None = None
    is_over: bool = field(default=False, init=False)
    """Set when the engine ended by itself, and so gave the lock back."""

    @property
    def fds(self) -> tuple[int, ...]:
        """What the command has to inherit."""
        return () if self.fd is None else (self.fd,)

    def held(self, since: str) -> None:
        """Note the moment for which the engine says that it held the lock."""
        with suppress(ValueError, OSError):
            at = datetime.fromisoformat(since)
            if self.fd is not None and self.note.held_at is None and at.tzinfo is not None:
                self.note = replace(self.note, held_at=at.astimezone(UTC))
                self._write(self.fd)

    def _write(self, fd: int) -> None:
        os.pwrite(fd, self.note.to_json(), 0)  # it only ever grows
        os.fdatasync(fd)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a lock is."""

    is_live: bool = False
    """Its holder runs on this host."""
    orphan_of: Note | None = None
    """The command of this host that took it and that is dead, provably."""
    why: str = ""
    """Why it is neither; or who lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLocks:
    """The notes of one state on this host."""

    root: Path | None
    """Folder of the notes on all states; None: nothing is noted, so that nothing is ever proved."""
    state: str
    """Says which state it is, and no other one."""
    who: str
    """What the engine calls us: `user@host`."""
    engines: frozenset[str]
    """Names under which the engine runs, also by hand."""
    run: str = ""

    @property
    def _folder(self) -> Path:
        return (self.root or Path("/nonexistent")) / self.state

    @contextmanager
    def noting(self, now: datetime) -> Iterator[Holding]:
        """Keep a note while a command runs; it stays when the command did not end by itself."""
        holding = Holding(Note(run=self.run, pid=os.getpid(), host=Host.this(), started_at=now))
        if self.root is not None:
            with suppress(OSError):  # a lock that we can't prove ours later is a nuisance, a run that fails is worse
                self._open(holding)
        try:
            yield holding
        finally:
            if holding.is_over and holding.path is not None:
                holding.path.unlink(missing_ok=True)
                if holding.note.held_at is not None:  # we had the lock, so nobody who died before has it
                    self._tidy()
            if holding.fd is not None:
                os.close(holding.fd)

    def _open(self, holding: Holding) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._folder / f"{uuid4().hex}{_DRAFT}"
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, holding.note.to_json())
        holding.fd, holding.path = fd, draft.rename(draft.with_suffix(_NOTE))

    def _tidy(self) -> None:
        for path in self._folder.glob(f"*{_NOTE}"):
            if _is_free(path):
                path.unlink(missing_ok=True)

    @property
    def knows_of_dead(self) -> bool:
        """Whether a command on this state did not end by itself, so that a lock may be its."""
        return any(_is_free(path) for path in self._folder.glob(f"*{_NOTE}"))

    def judge(self, lock: Lock) -> Verdict:
        """Tell whose lock it is. In doubt it is not ours."""
        if self.root is None:
            return Verdict(why="nothing was noted here")
        if not lock.who:
            return Verdict(why="its server does not tell who that is")
        if lock.who != self.who:
            return Verdict(why=f"it was not taken by {self.who}, as runs here are")
        fitting = [(path, note) for path in self.root.glob(f"*/*{_NOTE}") if (note := _read(path)) and note.held(lock)]
        for path, note in fitting:
            if not _is_free(path):
                return Verdict(is_live=True, why=f"{note} on this host, or something that it started, still runs")
        ours = [note for path, note in fitting if path.parent == self._folder]
        if not ours:
            return Verdict(why="no run that died on this host is known to have held it")
        return self._judge_dead(ours[0])

    def _judge_dead(self, note: Note) -> Verdict:
        here = Host.this()
        if not note.host.is_same_boot(here) and not note.host.is_earlier_boot(here):
            return Verdict(why=f"{note} may run on another machine that shares this state folder")
        if pids := strangers(self.engines):
            # Only one who waited for the lock while we held it, and got it since, could be taken for us.
            return Verdict(why=f"somebody runs the engine by hand on this host (process {pids[0]})")
        return Verdict(orphan_of=note)


def _read(path: Path) -> Note | None:
    try:
        return Note.parse(path.read_bytes())
    except OSError:
        return None


def _is_free(path: Path) -> bool:
    """Whether nothing of the note's command lives; False as well when that can't be told."""
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
