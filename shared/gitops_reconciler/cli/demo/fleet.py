"""The demo's fleet: `gitops up` as a child of its own, watched through the API like any other client would."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import redis

from gitops_reconciler import keys
from gitops_reconciler.cli.client import Client, Server, path_of, read_up_file
from gitops_reconciler.cli.demo.scratch import Scratch
from gitops_reconciler.cli.exits import ServerUnreachableError
from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import ReconcileError
from gitops_reconciler.layout import Layout
from gitops_reconciler.processes import Child, popen
from gitops_reconciler.supervise.procfs import all_processes, environ_of, send, wait_for_end

_START_SECONDS = 90.0
_END_SECONDS = 60.0
_LEFTOVER_SECONDS = 8.0
_POLL_SECONDS = 0.1
_TAIL_LINES = 40

T = TypeVar("T")


class DemoFailedError(ReconcileError):
    """Something that the demo promised did not come true; says what it waited for and what it saw instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A running fleet and how the demo looks at it."""

    client: Client
    url: str
    layout: Layout
    log: Path
    is_alive: Callable[[], bool]

    def targets(self) -> list[Mapping[str, Any]]:
        """Return all targets."""
        items: list[Mapping[str, Any]] = self.client.get("targets", [("limit", "500")]).json["items"]
        return items

    def runs(self, name: str) -> list[Mapping[str, Any]]:
        """Return the latest runs of a target, newest first."""
        items: list[Mapping[str, Any]] = self.client.get(path_of("targets", name, "runs")).json["items"]
        return items

    def ask(self, name: str) -> int:
        """Ask for a tick; returns the generation."""
        return int(self.client.post(path_of("targets", name, "tick")).json["generation"])

    def observed(self, name: str) -> int:
        """Return the generation that the target's last ended run served."""
        return int(self.client.get(path_of("targets", name)).json["observed"])

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers, as they said themselves."""
        with redis.Redis(unix_socket_path=str(self.layout.redis_socket), decode_responses=True) as client:
            signs: dict[str, str] = client.hgetall(keys.WORKERS)
        return [int(json.loads(sign)["pid"]) for sign in signs.values()]

    def wait_for(self, what: str, probe: Callable[[], T | None], *, seconds: float) -> T:
        """Return the first truth that the probe finds.

        Raises:
            DemoFailedError: it did not come in time, or the fleet ended.

        """
        until = time.monotonic() + seconds
        while True:
            with suppress(ServerUnreachableError):
                if found := probe():
                    return found
            if not self.is_alive():
                message = f"nobody is left who could bring this about: {what}"
                raise DemoFailedError(message)
            if time.monotonic() >= until:
                message = f"this did not come true within {seconds:.0f} s: {what}"
                raise DemoFailedError(message)
            time.sleep(_POLL_SECONDS)


@contextmanager
def running_fleet(scratch: Scratch, settings: Mapping[str, str]) -> Iterator[Fleet]:
    """Run `gitops up` on the scratch folder until the end of the block; nothing of it is left afterwards."""
    layout, log = Layout(scratch.state), scratch.root / "up.log"
    argv = [sys.executable, "-m", "gitops_reconciler.cli", "up", "--port", "0", "--state-dir", str(scratch.state)]
    with log.open("wb") as file:
        # A session of its own: Ctrl-C reaches the demo alone, which then ends the fleet in order.
        child = popen(
            argv, cwd=scratch.root, env={**scratch.env, **settings}, stdout=file, stderr=file, new_session=True
        )
    try:
        url = _wait_for_url(layout, lambda: child.poll() is None)
        client = Client(Server(url=url))
        yield Fleet(client=client, url=url, layout=layout, log=log, is_alive=lambda: child.poll() is None)
    finally:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        _await_end(child)
        _end_what_is_left(scratch.root)


def _await_end(child: Child) -> None:
    until = time.monotonic() + _END_SECONDS
    while child.poll() is None:
        if time.monotonic() >= until:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _end_what_is_left(root: Path) -> None:
    """End what a fleet that was killed left: its runs live on, by design; all of them have our folder as HOME."""
    mark = b"HOME=" + os.fsencode(root)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        left = [one.identity for one in all_processes().values() if one.is_alive and mark in environ_of(one.pid)]
        for who in left:
            send(who, number)
        patience = Deadline.after(_LEFTOVER_SECONDS)
        for who in left:
            wait_for_end(who, patience.remaining_seconds or 0.0)


def _wait_for_url(layout: Layout, is_alive: Callable[[], bool]) -> str:
    """Return the fleet's address once it answers there."""
    until = time.monotonic() + _START_SECONDS
    while is_alive():
        up = read_up_file(layout.up_file)
        if up is not None and _is_ready(str(up["url"])):
            return str(up["url"])
        if time.monotonic() >= until:
            message = f"`gitops up` did not answer within {_START_SECONDS:.0f} s"
            raise DemoFailedError(message)
        time.sleep(_POLL_SECONDS)
    message = "`gitops up` ended right after its start"
    raise DemoFailedError(message)


def _is_ready(url: str) -> bool:
    try:
        said = Client(Server(url=url)).get("readyz").json
    except ServerUnreachableError:
        return False
    return bool(said["status"] == "ok")


def tail_of(log: Path) -> Sequence[str]:
    """Return the last lines of a log."""
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return []
