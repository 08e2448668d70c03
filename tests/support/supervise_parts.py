"""Parts for supervised runs without a store: the lease is a folder of files, the body is named by the order.

The zygote of a test imports this module; what a body does is chosen by `payload["body"]`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.supervise.order import Lease, Order, RunEnd
from gitops_reconciler.supervise.procfs import Identity
from gitops_reconciler.work.base import Renewal


class FolderLease:
    """Answers what the file `renew-answer` or `complete-answer` says, and records what it was asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _answer(self, name: str) -> str:
        file = self._folder / f"{name}-answer"
        answer = file.read_text() if file.exists() else ""
        if answer == "away":
            raise StoreUnavailableError("the folder does not answer")
        return answer

    def renew(self) -> Renewal:
        with (self._folder / "renewals").open("a") as file:
            file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\n")
        return Renewal.LOST if self._answer("renew") == "lost" else Renewal.HELD

    def complete(self, ended: RunEnd) -> bool:
        with (self._folder / "offers").open("a") as file:
            file.write("!")
        answer = self._answer("complete")
        if answer == "broken" or (answer == "broken by a result" and ended.result is not None):
            raise ValueError("the lease has a bug")
        draft = self._folder / "end.draft"
        draft.write_text(json.dumps(asdict(ended)))
        draft.rename(self._folder / "end")
        return answer != "refused"


class FolderParts:
    """Runs one of the bodies below."""

    def lease(self, order: Order) -> Lease:
        return FolderLease(Path(order.payload["folder"]))

    def body(self, order: Order, lock_fd: int) -> dict[str, Any]:
        return BODIES[order.payload["body"]](order, lock_fd)


def make_parts() -> FolderParts:
    """The factory that a zygote is given."""
    return FolderParts()


def make_threaded_parts() -> FolderParts:
    """A mistake: a thread in a process that forks."""
    import threading

    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return FolderParts()


def _tool(order: Order, lock_fd: int) -> dict[str, Any]:
    fds = () if order.payload.get("closes_lock") else (lock_fd,)
    child = subprocess.Popen(order.payload["argv"], pass_fds=fds)
    _touch(order, "started")
    while True:
        try:
            return {"code": child.wait()}
        except KeyboardInterrupt:
            _touch(order, "interrupted")


def _touch(order: Order, name: str) -> None:
    (Path(order.payload["folder"]) / name).write_text(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}")


def _sleep(order: Order, _lock_fd: int) -> dict[str, Any]:
    _touch(order, "started")
    try:
        time.sleep(order.payload["seconds"])
    except KeyboardInterrupt:
        _touch(order, "interrupted")
        raise
    return {"slept": order.payload["seconds"]}


def _say(order: Order, lock_fd: int) -> dict[str, Any]:
    sys.stdout.write("from the body\n")
    subprocess.run(["sh", "-c", "echo from the tool; echo on stderr >&2"], check=True)
    return {
        "stdin": str(Path("/proc/self/fd/0").readlink()),
        "mark": os.environ["GITOPS_RUN"],
        "environ": Path("/proc/self/environ").read_bytes().split(b"\0").count(f"GITOPS_RUN={order.run}".encode()),
        "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "lock": str(Path(f"/proc/self/fd/{lock_fd}").readlink()),
        "leads_group": os.getpgid(0) == os.getpid(),
    }


def _raise(order: Order, _lock_fd: int) -> dict[str, Any]:
    raise ValueError(order.payload.get("text", "the body is broken"))


def _leave_stragglers(order: Order, _lock_fd: int) -> dict[str, Any]:
    children = [subprocess.Popen(argv) for argv in order.payload["stragglers"]]
    return {"pids": [child.pid for child in children]}


def _result_pipe() -> int:
    pipes = [int(entry.name) for entry in os.scandir("/proc/self/fd") if int(entry.name) > 2]
    for number in pipes:
        try:
            if str(Path(f"/proc/self/fd/{number}").readlink()).startswith("pipe:"):
                return number
        except OSError:
            continue
    raise RuntimeError("the result pipe was not found")


def _half_a_line_and_die(_order: Order, _lock_fd: int) -> dict[str, Any]:
    os.write(_result_pipe(), b'{"half": ')
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def _line_without_newline(_order: Order, _lock_fd: int) -> dict[str, Any]:
    os.write(_result_pipe(), b'{"whole": 1}')
    os._exit(0)


def _nested(_order: Order, _lock_fd: int) -> dict[str, Any]:
    os.write(_result_pipe(), b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"\n")
    os._exit(0)


def _exit_with_seven(_order: Order, _lock_fd: int) -> dict[str, Any]:
    os._exit(7)


def _two_lines(_order: Order, _lock_fd: int) -> dict[str, Any]:
    os.write(_result_pipe(), b'{"first": 1}\n')
    return {"second": 2}


def _no_object(_order: Order, _lock_fd: int) -> dict[str, Any]:
    answer: Any = ["a list"]
    return answer  # type: ignore[no-any-return]  # the mistake is the point


def _big(order: Order, _lock_fd: int) -> dict[str, Any]:
    return {"big": "y" * order.payload["bytes"]}


def _fork_keeps_the_pipe(_order: Order, _lock_fd: int) -> dict[str, Any]:
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    return {"ok": True}


def _count_interrupts(order: Order, lock_fd: int) -> dict[str, Any]:
    """A tool that notes each SIGINT, and ends 0.5 s after the first one."""
    script = (
        "import os, signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "open(sys.argv[1] + '/started', 'w').close()\n"
        "while not seen: time.sleep(0.05)\n"
        "until = time.monotonic() + 0.5\n"
        "while time.monotonic() < until: time.sleep(0.05)\n"
        "open(sys.argv[1] + '/count', 'w').write(str(len(seen)))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, order.payload["folder"]], pass_fds=(lock_fd,))
    while True:
        try:
            return {"code": child.wait()}
        except KeyboardInterrupt:
            continue


def _daemonize(_order: Order, lock_fd: int) -> dict[str, Any]:
    """A fork without exec that leaves the session and closes the lock: only its marked environ gives it away."""
    if os.fork() == 0:
        os.setsid()
        os.close(lock_fd)
        if os.fork():
            os._exit(0)
    time.sleep(600)
    return {}


def _witness(order: Order, _lock_fd: int) -> dict[str, Any]:
    """Says who of others is still at work, now that this run is."""
    from tests.support.supervise_workers import is_at_work

    return {"at work": [who for who in order.payload["others"] if is_at_work(Identity(*who))]}


BODIES: dict[str, Callable[[Order, int], dict[str, Any]]] = {
    "tool": _tool,
    "sleep": _sleep,
    "say": _say,
    "raise": _raise,
    "stragglers": _leave_stragglers,
    "half a line, then SIGKILL": _half_a_line_and_die,
    "no newline": _line_without_newline,
    "nested": _nested,
    "exit 7": _exit_with_seven,
    "two lines": _two_lines,
    "no object": _no_object,
    "big": _big,
    "fork keeps the pipe": _fork_keeps_the_pipe,
    "count interrupts": _count_interrupts,
    "daemonize": _daemonize,
    "witness": _witness,
}
