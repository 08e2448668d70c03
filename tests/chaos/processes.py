"""Finds the fleet's processes from outside, as `ps` would: by a mark in their environment, by names and parents."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

GUARD, SUPERVISOR, RUN, ZYGOTE = "gitops-guard", "gitops-super", "gitops-run", "gitops-zygote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One living process of the campaign."""

    pid: int
    started: str
    parent: int
    name: str
    run: str
    """From its environment; of guard and supervisor there is none."""
    target: str
    host: str
    """The state folder's name."""
    is_stopped: bool
    command: str

    @property
    def is_worker(self) -> bool:
        """Whether it is a worker itself, and not its server of runs."""
        return "worker --name" in self.command

    def send(self, number: signal.Signals) -> bool:
        """Signal it; False when it is gone."""
        with suppress(ProcessLookupError):
            if _started(self.pid) == self.started:
                os.kill(self.pid, number)
                return True
        return False

    def __str__(self) -> str:
        return f"{self.name.removeprefix('gitops-')}:{self.pid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The processes of one run, from the one that forked its guard down to the run process."""

    run: str
    target: str
    """Empty before its apply has begun."""
    process: Process
    supervisor: Process
    guard: Process
    zygote: Process | None
    worker: Process | None


@dataclass(frozen=True, slots=True)
class Scene:
    """All living processes of a campaign at one moment."""

    processes: dict[int, Process] = field(default_factory=dict)

    def chains(self) -> list[Chain]:
        """The runs that are whole, in the order of their ids."""
        targets = {one.run: one.target for one in self.processes.values() if one.target}
        made = []
        for process in self.named(RUN):
            supervisor = self.processes.get(process.parent)
            guard = self.processes.get(supervisor.parent) if supervisor else None
            if supervisor is None or guard is None or (supervisor.name, guard.name) != (SUPERVISOR, GUARD):
                continue
            zygote = self.processes.get(guard.parent)
            made.append(
                Chain(
                    run=process.run,
                    target=targets.get(process.run, ""),
                    process=process,
                    supervisor=supervisor,
                    guard=guard,
                    zygote=zygote,
                    worker=self.processes.get(zygote.parent) if zygote else None,
                )
            )
        return sorted(made, key=lambda chain: chain.run)

    def has_worker_besides(self, victims: list[Process]) -> bool:
        """Whether the victims' host keeps a worker that can look after what they leave."""
        hosts = {victim.host for victim in victims}
        others = [one for one in self.processes.values() if one.is_worker and one not in victims]
        return any(one.host in hosts and not one.is_stopped for one in others)

    def named(self, name: str) -> list[Process]:
        """All of a name, in the order of their pids."""
        return [one for _, one in sorted(self.processes.items()) if one.name == name]


def scene(folder: Path) -> Scene:
    """Look at all processes that have this folder in their environment."""
    mark = f"CHAOS_FOLDER={folder}".encode()
    return Scene({one.pid: one for one in _all(mark)})


def _all(mark: bytes) -> Iterator[Process]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                environ = Path(entry.path, "environ").read_bytes().split(b"\0")
                if mark in environ:
                    yield _read(int(entry.name), dict(part.partition(b"=")[::2] for part in environ))


def _read(pid: int, environ: dict[bytes, bytes]) -> Process:
    stat = _stat(pid)
    if stat[1][0] in "ZX":
        raise OSError("it is dead")
    return Process(
        pid=pid,
        started=stat[1][19],
        parent=int(stat[1][1]),
        name=stat[0],
        run=environ.get(b"GITOPS_RUN", b"").decode(),
        target=environ.get(b"GITOPS_TARGET", b"").decode(),
        host=Path(environ.get(b"GITOPS_STATE_DIR", b"").decode()).name,
        is_stopped=stat[1][0] in "Tt",
        command=Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:300],
    )


def _stat(pid: int) -> tuple[str, list[str]]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    head, _, tail = text.rpartition(")")
    return head.partition("(")[2], tail.split()


def _started(pid: int) -> str:
    with suppress(OSError, IndexError):
        name_and_rest = _stat(pid)[1]
        return "" if name_and_rest[0] in "ZX" else name_and_rest[19]
    return ""
