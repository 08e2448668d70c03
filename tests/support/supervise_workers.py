"""A worker as a process of its own, with one run for each shape of tools: everybody of the chain can be killed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gitops_reconciler.supervise.procfs import Identity, all_processes, environ_of, send
from gitops_reconciler.supervise.zygote import Zygote
from tests.support.supervise_runs import ENVIRONMENT, PARTS, ROOT, TOOLS, Run, living, order_in, until


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One run of the worker: its keepers and everything that does its work."""

    run: str
    guard: Identity
    supervisor: Identity
    process: Identity
    work: set[Identity]
    lock: Path
    leftover: Path

    def told(self) -> str:
        return json.dumps({**asdict(self), "work": sorted(self.work)}, default=str)

    @classmethod
    def heard(cls, text: str) -> "Kept":
        values = json.loads(text)
        return cls(
            run=values["run"],
            guard=Identity(*values["guard"]),
            supervisor=Identity(*values["supervisor"]),
            process=Identity(*values["process"]),
            work={Identity(*who) for who in values["work"]},
            lock=Path(values["lock"]),
            leftover=Path(values["leftover"]),
        )


@dataclass
class Worker:
    """The worker, seen from a test."""

    worker: Identity
    zygote: Identity
    runs: dict[str, Kept] = field(default_factory=dict)

    def named(self, name: str) -> set[Identity]:
        """Who is meant: `worker`, `zygote`, or a part of every run."""
        own = {"worker": self.worker, "zygote": self.zygote}
        return {own[name]} if name in own else {getattr(run, name) for run in self.runs.values()}

    def signal(self, *names: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal them all in one go, each name once for every run."""
        for who in [who for name in names for who in self.named(name)]:
            send(who, number)

    @property
    def work(self) -> set[Identity]:
        return {who for run in self.runs.values() for who in run.work}

    def clean_up(self) -> None:
        """Kill what is left of it."""
        marks = {f"GITOPS_RUN={run.run}".encode() for run in self.runs.values()}
        known = self.work | {who for name in ("worker", "zygote", "guard", "supervisor") for who in self.named(name)}

        def is_over() -> bool:
            marked = {p.identity for p in all_processes().values() if p.is_alive and marks & {*environ_of(p.pid)}}
            left = living(known) | marked
            for who in left:
                send(who, signal.SIGKILL)
            return not left

        until(is_over, 30, "the worker and its runs are gone")


@contextmanager
def running_worker(folder: Path, *tools: str) -> Iterator[Worker]:
    """A worker with a run for each of these tools, all at work; the targets are named t0, t1, …"""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.supervise_workers", str(folder), *tools],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        zygote = process.stdout.readline()
        worker = Worker(Identity.of(process.pid), Identity.of(int(zygote)))
        try:
            for number, _ in enumerate(tools):
                worker.runs[f"t{number}"] = Kept.heard(process.stdout.readline().decode())
            yield worker
        finally:
            worker.clean_up()


def is_at_work(who: Identity) -> bool:
    """Whether it can still do anything: a killed process closes its files a moment before it counts as dead."""
    try:
        return who.is_alive and any(Path(f"/proc/{who.pid}/fd").iterdir())
    except OSError:
        return False


def main(folder: Path, *tools: str) -> None:
    with Zygote(PARTS, ENVIRONMENT) as zygote:
        sys.stdout.write(f"{zygote.pid}\n")
        runs = []
        for number, name in enumerate(tools):
            processes, *argv = TOOLS[name]
            run = Run(zygote, order_in(folder, "tool", target=f"t{number}", payload={"argv": argv}))
            run.wait_aside()
            run.until_started()
            runs.append(run)
            order = run.order
            kept = Kept(
                run=order.run, guard=run.guard, supervisor=run.supervisor, process=run.process,
                work=run.work(processes), lock=Path(order.lock), leftover=Path(order.leftover),
            )  # fmt: skip
            sys.stdout.write(f"{kept.told()}\n")
            sys.stdout.flush()
        for run in runs:
            run.answer(600)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
