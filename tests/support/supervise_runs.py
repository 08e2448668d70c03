"""Supervised runs for tests: started with short times, looked into, and ended whatever happens."""

import contextlib
import fcntl
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gitops_reconciler.clock import boottime
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.order import Order
from gitops_reconciler.supervise.procfs import Identity, all_processes, descendants, environ_of, send
from gitops_reconciler.supervise.running import Running
from gitops_reconciler.supervise.zygote import Zygote

PARTS = "tests.support.supervise_parts:make_parts"
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GITOPS_")}
ENVIRONMENT["PYTHONPATH"] = str(ROOT)

TTL, RENEWAL, GRACE, SLACK = 3.0, 0.25, 0.5, 1.0
WINDOW = TTL - GRACE - SLACK
MARGIN = 30.0  # bounds of waits cost nothing when they are met early


def until(claim: Callable[[], object], seconds: float, what: str) -> float:
    """Poll until the claim holds; the seconds that it took."""
    begin = time.monotonic()
    while not claim():
        assert time.monotonic() - begin < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)
    return time.monotonic() - begin


def order_in(
    folder: Path, body: str, *, target: str = "web", payload: dict[str, Any] | None = None, **fields: Any
) -> Order:
    """An order with short times; its lease lives in a folder of its own, its lock in the target's."""
    run = uuid.uuid4().hex
    lease = folder / run
    lease.mkdir(parents=True)
    for question, answer in fields.pop("answers", {}).items():
        (lease / f"{question}-answer").write_text(answer)
    times = {"ttl_seconds": TTL, "renewal_seconds": RENEWAL, "grace_seconds": GRACE, "slack_seconds": SLACK}
    values: dict[str, Any] = {
        "tidy_seconds": 0.3,
        "deadline_seconds": 60.0,
        "claimed_at": boottime(),
        **times,
        **fields,
    }
    return Order(
        run=run,
        item=f"default/{target}",
        kind="resources",
        token=1,
        generation=1,
        lock=str(folder / "locks" / f"{target}.lock"),
        leftover=str(folder / "locks" / f"{target}.run"),
        log=str(lease / "log"),
        payload={"folder": str(lease), "body": body, **(payload or {})},
        **values,
    )


class Run:
    """One run, seen from a test."""

    def __init__(self, zygote: Zygote, order: Order) -> None:
        self.order, self.folder = order, Path(order.payload["folder"])
        self.running: Running = zygote.start(order)
        self._answers: list[bool] = []
        self._waiter: threading.Thread | None = None
        self._known: set[Identity] = set()

    @property
    def board(self) -> Board:
        return self.running._board

    def until_started(self) -> None:
        """Wait for the body's own word, and keep who the keepers are."""
        until(self.has("started"), 30, "the body has started")
        self.guard, self.supervisor, self.process = self.board.guard, self.board.supervisor, self.board.group
        assert self.guard.is_alive
        assert self.supervisor.is_alive

    def has(self, name: str) -> Callable[[], bool]:
        return (self.folder / name).exists

    def work(self, at_least: int) -> set[Identity]:
        """Run process and tools: all below the guard but the supervisor; waits until so many are there."""
        found: set[Identity] = set()

        def is_complete() -> bool:
            below = {process.identity for process in descendants(self.guard.pid)} - {self.supervisor}
            found.clear()
            found.update(below)
            return len(found) >= at_least

        until(is_complete, 30, f"{at_least} processes of the run")
        self._known |= found
        return set(found)

    def kill(self, *names: str, number: signal.Signals = signal.SIGKILL) -> None:
        for name in names:
            send(getattr(self, name), number)

    def wait_aside(self) -> None:
        """Wait in a thread, as a worker does."""
        self._waiter = threading.Thread(target=lambda: self._answers.append(self.running.wait()))
        self._waiter.start()

    def answer(self, seconds: float = 40.0) -> bool:
        """What `wait` said."""
        if self._waiter is None:
            self.wait_aside()
        assert self._waiter is not None
        self._waiter.join(seconds)
        assert self._answers, f"wait() did not return within {seconds:g} s"
        return self._answers[0]

    @property
    def log(self) -> str:
        return Path(self.order.log).read_text()

    @property
    def end(self) -> dict[str, Any]:
        """What the lease was told at the end."""
        until(self.has("end"), 30, "the end of the run was completed")
        end: dict[str, Any] = json.loads((self.folder / "end").read_text())
        return end

    def time_of(self, name: str) -> float:
        return float((self.folder / name).read_text())

    def clean_up(self) -> None:
        """Kill whatever is left of it, and whoever keeps it."""
        until(self._kill_all, 30, "the test's processes are gone")
        self.answer()

    def _kill_all(self) -> bool:
        board = self.running._board
        with contextlib.suppress(ValueError):  # closed by a waiting thread meanwhile
            self._known |= {board.guard, board.supervisor, board.group} - {Identity(0, 0)}
        mark = f"GITOPS_RUN={self.order.run}".encode()
        marked = {p.identity for p in all_processes().values() if p.is_alive and mark in environ_of(p.pid)}
        living = {who for who in self._known if who.is_alive} | marked
        for who in living:
            send(who, signal.SIGKILL)
        return not living


Start = Callable[..., Run]


def living(identities: set[Identity]) -> set[Identity]:
    return {who for who in identities if who.is_alive}


@contextlib.contextmanager
def cleaned_up(started: list[Run]) -> Iterator[None]:
    """Ends, afterwards, all runs that were put into the list meanwhile."""
    try:
        yield
    finally:
        for run in started:
            run.clean_up()


def start_tool(start: Start, *argv: str, processes: int, **fields: Any) -> Run:
    """A run whose body waits for this tool; started once so many processes of it are there."""
    run = start("tool", payload={"argv": argv, "closes_lock": fields.pop("closes_lock", False)}, **fields)
    run.until_started()
    run.work(processes)
    return run


def is_locked(run: Run) -> bool:
    return is_held(Path(run.order.lock))


def is_held(lock: Path) -> bool:
    """Whether anybody has the flock of this file."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


TOOLS = {
    "background child": (3, "sh", "-c", "sleep 600 & wait"),
    "setsid": (2, "setsid", "sleep", "600"),
    "double fork, empty environ": (4, "sh", "-c", "(env -i setsid sleep 600 &); sleep 600 & wait"),
}
