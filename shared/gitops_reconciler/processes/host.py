"""Which machine this is, since when it runs, and who else on it runs a tool: what a note left behind is judged by."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.processes.ending import MARK

_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # the kernel's fixed number of the one that is no container's
_LONGEST_NAME = 15  # of a process, as the kernel keeps it


@dataclass(frozen=True, slots=True)
class Host:
    """One boot of one machine. Two are the same machine only where that can be told."""

    boot: str
    """One kernel from its start to its end, containers included; empty: not known."""
    machine: str
    """Empty in a container, whose id is that of its image, and where there is none."""

    @classmethod
    def this(cls) -> Host:
        """Return where we are."""
        boot = _text(Path("/proc/sys/kernel/random/boot_id"))
        return cls(boot, _text(Path("/etc/machine-id")) if _is_outside_containers() else "")

    def is_same_boot(self, other: Host) -> bool:
        """Whether both see one kernel, so that its locks speak for all processes of both."""
        return bool(self.boot) and self.boot == other.boot

    def is_earlier_boot(self, other: Host) -> bool:
        """Whether that is this very machine before it was started again: nothing of then lives."""
        is_known = bool(self.boot and other.boot and self.machine)
        return is_known and self.machine == other.machine and self.boot != other.boot


def _is_outside_containers() -> bool:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def strangers(names: Iterable[str]) -> list[int]:
    """Return living processes of our user that are called so and that no command of ours started, as far as we see."""
    wanted = {name[:_LONGEST_NAME] for name in names}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile, or not ours to look at
            is_wanted = _text(folder / "comm") in wanted and folder.stat().st_uid == os.geteuid()
            if is_wanted and f"\0{MARK}=".encode() not in b"\0" + (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
