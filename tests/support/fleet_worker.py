"""A worker of the fleet as a process without Celery: runs the items that it is told, each in a thread of its own."""

import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.settings import load_settings
from gitops_reconciler.supervise.leftovers import Record
from gitops_reconciler.supervise.procfs import Identity, all_processes, descendants, environ_of, read_process
from gitops_reconciler.wiring import fleet_runner

MODULE = "tests.support.fleet_worker"


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Who works at one run, as its record and the table of processes show them."""

    zygote: Identity
    guard: Identity
    supervisor: Identity
    process: Identity
    work: frozenset[Identity]
    """Run process and tools."""

    @classmethod
    def of(cls, leftover: Path) -> "Chain":
        record = Record.parse(leftover.read_bytes())
        assert record is not None
        guard = read_process(record.guard.pid)
        assert guard is not None
        mark = f"GITOPS_RUN={record.run}".encode()
        marked = {p.identity for p in all_processes().values() if p.is_alive and mark in environ_of(p.pid)}
        below = {process.identity: process.parent for process in descendants(record.guard.pid)}
        (process,) = [who for who, parent in below.items() if parent == record.supervisor.pid]
        return cls(
            zygote=Identity.of(guard.parent),
            guard=record.guard,
            supervisor=record.supervisor,
            process=process,
            work=frozenset((below.keys() | marked) - {record.supervisor}),
        )

    @property
    def keepers(self) -> set[Identity]:
        return {self.zygote, self.guard, self.supervisor}


def main(*items: str) -> None:
    runner = fleet_runner(load_settings())
    threads = [threading.Thread(target=runner.run, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runner.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
