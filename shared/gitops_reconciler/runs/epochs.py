"""The epoch of the store, kept on disk: a host notices that its store was emptied or is another one, and says stop.

What people decided (suspensions, wishes, sources) lies in the store alone. A store that has forgotten it must not have
everything run again, so the fleet is paused until a person resumes it; then each host adopts the new epoch.
"""

from __future__ import annotations

import logging
import os
import platform
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from redis.exceptions import RedisError

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.work.base import Paused

_log = logging.getLogger("gitops_reconciler")

_EPOCH = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SHOWN = 8
_EMPTIED = (
    "sources of the settings come back by themselves and bring their targets; gone are sources added with "
    "`gitops source add`, suspensions, wishes to destroy, API tokens and the history of runs: add what is missing, "
    "suspend what must not run, then `gitops resume --fleet`"
)
_SWAPPED = (
    "see whether GITOPS_REDIS_URL leads to the right store and whether its targets and suspensions are those of today, "
    "then `gitops resume --fleet`"
)


class Epoch(Protocol):
    """What is read of the store."""

    def epoch(self) -> str:
        """Return the id of the store's history; made by whoever asks first."""
        ...

    def has_targets(self) -> bool:
        """Whether any target is known."""
        ...


class Pauses(Protocol):
    """The step of the work protocol that stops the fleet."""

    def pause(self, reason: str, *, actor: str, advice: str = "", epoch: str = "") -> Paused:
        """Pause, unless the epoch is this store's or was adopted."""
        ...


@dataclass(frozen=True, slots=True)
class EpochFile:
    """One line in the state folder: the epoch that this host last worked with."""

    path: Path

    def read(self) -> str | None:
        """Return the epoch; None where there is no file, or nothing in it that is an epoch."""
        try:
            text = self.path.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("the epoch of the store can't be read: %s", error)
            return None
        if _EPOCH.fullmatch(text):
            return text
        _log.warning("there is no epoch in %s: taken as a first start", self.path)
        return None

    def write(self, epoch: str) -> None:
        """Keep the epoch, whole or not at all; where that is impossible it is only said."""
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with new.open("w", encoding="ascii") as file:
                file.write(f"{epoch}\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            _log.warning("the epoch of the store can't be kept, a swap while nothing runs goes unnoticed: %s", error)
            with suppress(OSError):
                new.unlink(missing_ok=True)


@dataclass(slots=True)
class HostEpoch:
    """Compares the store with what this host worked with. A host's processes share the file, threads this."""

    file: EpochFile
    store: Epoch
    work: Pauses
    host: str = field(default_factory=platform.node)
    _ours: str | None = None

    def is_ours(self, epoch: str) -> bool:
        """Whether what was claimed under this epoch may run here; looks closer, and pauses the fleet, if it differs.

        Raises StoreUnavailableError when that can't be told.
        """
        return epoch == self._ours or (self.check() and epoch == self._ours)

    def check(self) -> bool:
        """Compare with the store: adopt its epoch at the first start, pause the fleet where it is another one.

        False: it is another one. Raises StoreUnavailableError.
        """
        try:
            return self._check()
        except (RedisError, OSError) as error:
            message = f"redis did not tell its epoch: {trouble(error)}"
            raise StoreUnavailableError(message) from error

    def _check(self) -> bool:
        found = self.store.epoch()
        if found == self._ours:
            return True
        known = self.file.read() or self._ours  # another process of this host may have been here first
        if known is None:
            self.file.write(found)
        elif known != found and not self._may_adopt(known, found):
            self._ours = known
            return False
        self._ours = found
        return True

    def _may_adopt(self, known: str, found: str) -> bool:
        """Whether a person has said that hosts of that epoch go on here; otherwise the fleet is paused from now on."""
        if self.store.has_targets():
            what, advice = f"is another one ({found[:_SHOWN]})", _SWAPPED
        else:
            what, advice = "was emptied, or is a new one", _EMPTIED
        reason = f"the store {what}: host {self.host} worked with epoch {known[:_SHOWN]}"
        answer = self.work.pause(reason, actor=self.host, advice=advice, epoch=known)
        if answer is Paused.ADOPT:
            _log.info("the fleet was resumed: this host goes on with the store as it is", extra={"epoch": found})
            self.file.write(found)
            return True
        if answer is Paused.PAUSED:
            _log.error("the fleet is paused: %s; %s", reason, advice)
        return answer is Paused.SAME
