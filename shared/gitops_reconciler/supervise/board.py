"""The board: one shared page per run, on which worker, guard, supervisor and run process see the same times.

Every field is one aligned double, written and read in a single move, so no lock is needed (and none can be held by a
frozen process). The one decision that must fall exactly once, who interrupts, is an eventfd that can be read once.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum, auto

from gitops_reconciler.clock import boottime
from gitops_reconciler.redaction import printable, redact_url
from gitops_reconciler.supervise.order import Interruption
from gitops_reconciler.supervise.procfs import Identity

_TEXT_AT = 2048
_TEXT_LIMIT = 1024
_REASONS = tuple(Interruption)


class _Field(IntEnum):
    BUSY = 0
    CLEAN = auto()
    COMPLETED = auto()
    INTERRUPT_AT = auto()
    DEADLINE_AT = auto()
    STOP = auto()
    ENDING_AT = auto()
    REASON = auto()
    GUARD = auto()
    GUARD_STARTED = auto()
    GUARD_BEAT = auto()
    SUPERVISOR = auto()
    SUPERVISOR_STARTED = auto()
    SUPERVISOR_BEAT = auto()
    GROUP = auto()
    GROUP_STARTED = auto()


class Board:
    """The page of one run. Times are CLOCK_BOOTTIME; 0 means not yet."""

    def __init__(self, page_fd: int, token_fd: int) -> None:
        self._page = mmap.mmap(page_fd, mmap.PAGESIZE)
        self._view = memoryview(self._page)
        self._fields = self._view.cast("d")
        self._token_fd = token_fd

    @staticmethod
    def create() -> tuple[int, int]:
        """Make a new page and its token; the caller owns both descriptors."""
        page_fd = os.memfd_create("gitops-run")
        os.ftruncate(page_fd, mmap.PAGESIZE)
        return page_fd, os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def close(self) -> None:
        """Let go of the page and the token; the others keep theirs."""
        self._fields.release()
        self._view.release()
        self._page.close()
        os.close(self._token_fd)

    @property
    def is_busy(self) -> bool:
        """Whether the run was over before it began: the flock is held by another one, or by what one left."""
        return self._fields[_Field.BUSY] != 0

    def set_busy(self) -> None:
        """Say that the flock was not to be had."""
        self._fields[_Field.BUSY] = 1

    @property
    def is_clean(self) -> bool:
        """Whether nothing of the run lives any more, keepers apart."""
        return self._fields[_Field.CLEAN] != 0

    def set_clean(self) -> None:
        """Say that waitpid found nothing left."""
        self._fields[_Field.CLEAN] = 1

    @property
    def is_completed(self) -> bool:
        """Whether the supervisor has done all it could, record included."""
        return self._fields[_Field.COMPLETED] != 0

    def set_completed(self) -> None:
        """Say that the supervisor is done."""
        self._fields[_Field.COMPLETED] = 1

    @property
    def interrupt_at(self) -> float:
        """When the lease no longer covers the grace: no renewal was confirmed, or one was refused."""
        return self._fields[_Field.INTERRUPT_AT]

    @interrupt_at.setter
    def interrupt_at(self, at: float) -> None:
        self._fields[_Field.INTERRUPT_AT] = at

    @property
    def deadline_at(self) -> float:
        """When the run's time is up."""
        return self._fields[_Field.DEADLINE_AT]

    @deadline_at.setter
    def deadline_at(self, at: float) -> None:
        self._fields[_Field.DEADLINE_AT] = at

    @property
    def is_stop_asked(self) -> bool:
        """Whether someone wants the run to end."""
        return self._fields[_Field.STOP] != 0

    def ask_stop(self) -> None:
        """Have the run interrupted, within a second."""
        self._fields[_Field.STOP] = 1

    @property
    def guard(self) -> Identity:
        """The guard; pid 0: the order was not taken up yet."""
        return self._identity(_Field.GUARD)

    @guard.setter
    def guard(self, who: Identity) -> None:
        self._set_identity(_Field.GUARD, who)

    @property
    def supervisor(self) -> Identity:
        """The supervisor; pid 0: there is none yet."""
        return self._identity(_Field.SUPERVISOR)

    @supervisor.setter
    def supervisor(self, who: Identity) -> None:
        self._set_identity(_Field.SUPERVISOR, who)

    @property
    def group(self) -> Identity:
        """The run process, leader of the run's process group; pid 0: nothing was started yet."""
        return self._identity(_Field.GROUP)

    @group.setter
    def group(self, who: Identity) -> None:
        self._set_identity(_Field.GROUP, who)

    def _identity(self, first: _Field) -> Identity:
        return Identity(int(self._fields[first]), int(self._fields[first + 1]))

    def _set_identity(self, first: _Field, who: Identity) -> None:
        self._fields[first + 1] = who.started
        self._fields[first] = who.pid  # last: it is what others look at

    @property
    def guard_beat(self) -> float:
        """When the guard last looked."""
        return self._fields[_Field.GUARD_BEAT]

    @guard_beat.setter
    def guard_beat(self, at: float) -> None:
        self._fields[_Field.GUARD_BEAT] = at

    @property
    def supervisor_beat(self) -> float:
        """When the supervisor last looked."""
        return self._fields[_Field.SUPERVISOR_BEAT]

    @supervisor_beat.setter
    def supervisor_beat(self, at: float) -> None:
        self._fields[_Field.SUPERVISOR_BEAT] = at

    @property
    def ending_at(self) -> float:
        """When the end began (interrupted, crashed or done): what the grace counts from."""
        return self._fields[_Field.ENDING_AT]

    @property
    def reason(self) -> Interruption:
        """Why the run was interrupted, if it was."""
        return _REASONS[int(self._fields[_Field.REASON])]

    def begin_ending(self, reason: Interruption) -> bool:
        """Begin the end of the run; True for exactly one caller ever, who then sends the one signal.

        A second SIGINT makes terraform abort and lose what it was creating.
        """
        try:
            os.eventfd_read(self._token_fd)
        except BlockingIOError:
            if not self.ending_at:  # whoever took the token died before it wrote the time
                self._fields[_Field.ENDING_AT] = boottime()
            return False
        self._fields[_Field.REASON] = _REASONS.index(reason)
        self._fields[_Field.ENDING_AT] = boottime()
        return True

    def due(self, at: float) -> Interruption | None:
        """Return why the run should have been interrupted by that time, or None."""
        if self.is_stop_asked:
            return Interruption.STOPPED
        moment, reason = min((self.deadline_at, Interruption.DEADLINE), (self.interrupt_at, Interruption.LEASE))
        return reason if moment <= at else None

    @property
    def failure(self) -> str:
        """What guard, supervisor or run process died of, printable and without logins of URLs; empty: all is well."""
        text: bytes = self._page[_TEXT_AT : _TEXT_AT + _TEXT_LIMIT]
        return text.partition(b"\0")[0].decode(errors="ignore")

    @failure.setter
    def failure(self, text: str) -> None:
        data = printable(redact_url(text)).replace("\x1b", "").encode(errors="replace")[: _TEXT_LIMIT - 1]
        self._page[_TEXT_AT : _TEXT_AT + len(data) + 1] = data + b"\0"
