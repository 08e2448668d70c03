"""The zygote: a warm, single-threaded server with everything imported, which forks one guard per order.

A worker has threads, so it must not fork; it starts one zygote and sends orders. Run as a module this is the server,
imported it is the worker's side of it.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import Self

from gitops_reconciler.clock import boottime
from gitops_reconciler.errors import ReconcileError
from gitops_reconciler.processes import popen
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.forking import fork
from gitops_reconciler.supervise.guard import guard
from gitops_reconciler.supervise.linux import require_linux, set_name
from gitops_reconciler.supervise.order import RUN_ID_LENGTH, RUN_MARK, Order, Parts
from gitops_reconciler.supervise.procfs import Identity, wait_for_end
from gitops_reconciler.supervise.running import TAKE_UP_SECONDS, Launched, Running

_log = logging.getLogger(__name__)
_READY = b"ready"
_ORDER = b"order"
_MODULE = "gitops_reconciler.supervise.zygote"  # as `__name__`, which is `__main__` in the server
_DESCRIPTORS = 4
_MESSAGE_LIMIT = 4096
_START_SECONDS = 60.0
_SEND_SECONDS = 10.0
_END_SECONDS = 3.0


class Zygote:
    """Starts runs. Any thread may call; a server that died, or takes up no order for too long, is replaced.

    `parts` names a function without arguments (`module:attribute`) that returns the `Parts`; the server imports it
    first. `settings_env` is the server's whole environment, by default a copy of ours.

    Raises:
        NotBuiltError: this is not Linux.
        ReconcileError: the server did not start; the message says why.

    """

    def __init__(
        self,
        parts: str,
        settings_env: Mapping[str, str] | None = None,
        *,
        take_up_seconds: float = TAKE_UP_SECONDS,
    ) -> None:
        require_linux()
        self._parts = parts
        self._env = dict(os.environ if settings_env is None else settings_env)
        self._take_up_seconds = take_up_seconds
        self._lock = threading.Lock()
        self._is_closed = False
        self._server = _Server(parts, self._env)

    @property
    def pid(self) -> int:
        """The server that takes the next order."""
        return self._server.pid

    def start(self, order: Order) -> Running:
        """Start a run and return at once.

        Raises:
            ReconcileError: no server could be started.

        """
        return Running(order, self._launch, take_up_seconds=self._take_up_seconds)

    def _launch(self, order: Order) -> Launched:
        try:
            return self._hand_over(order)
        except OSError as error:
            raise ReconcileError(f"no run could be started: {error}") from error

    def _hand_over(self, order: Order) -> Launched:
        with ExitStack() as given_away, ExitStack() as on_failure:
            page_fd, token_fd = Board.create()
            given_away.callback(os.close, page_fd)
            board = Board(page_fd, token_fd)
            on_failure.callback(board.close)
            board.interrupt_at = order.claimed_at + order.window_seconds
            board.deadline_at = order.deadline_at
            line, its_line = os.pipe()
            on_failure.callback(os.close, line)
            given_away.callback(os.close, its_line)
            order_fd = os.memfd_create("gitops-order")
            given_away.callback(os.close, order_fd)
            os.pwrite(order_fd, order.to_json().encode(), 0)
            server = self._send([page_fd, token_fd, order_fd, its_line])
            on_failure.pop_all()
        return Launched(board=board, line=line, replace_server=lambda: self._replace(server), at=boottime())

    def _send(self, fds: list[int]) -> _Server:
        with self._lock:
            if self._is_closed:
                raise ReconcileError("no run was started: the worker ends")
            try:
                self._server.send(fds)
            except OSError:
                _log.warning("the server of runs is gone, a new one is started", extra={"zygote": self._server.pid})
                self._server.kill()
                self._server = _Server(self._parts, self._env)
                self._server.send(fds)
            return self._server

    def _replace(self, server: _Server) -> None:
        with self._lock:
            if server is not self._server:
                return  # another order was as late
            server.kill()
            if not self._is_closed:
                _log.warning(
                    "the server of runs takes up no orders, a new one is started", extra={"zygote": server.pid}
                )
                self._server = _Server(self._parts, self._env)

    def close(self) -> None:
        """End the server; runs go on, and who waits for them goes on waiting."""
        with self._lock:
            self._is_closed = True
            self._server.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server:
    """One zygote process, seen from the worker."""

    def __init__(self, parts: str, env: Mapping[str, str]) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its, Path(os.devnull).open("wb") as nothing:
            self._process = popen(
                [sys.executable, "-P", "-m", _MODULE, str(its.fileno()), parts],
                cwd=Path("/"),
                env={**env, RUN_MARK: "-" * RUN_ID_LENGTH},
                stdout=nothing,
                stderr=nothing,
                pass_fds=(its.fileno(),),
                new_session=True,
            )
        self.pid = self._process.pid
        self._who = Identity.of(self.pid)
        self._await_ready(parts)

    def _await_ready(self, parts: str) -> None:
        self._socket.settimeout(_START_SECONDS)
        try:
            answer = self._socket.recv(_MESSAGE_LIMIT)
        except OSError as error:
            answer = str(error).encode()
        if answer != _READY:
            self.end()
            raise ReconcileError(f"the server of runs did not start with '{parts}': {answer.decode() or 'it ended'}")
        self._socket.settimeout(_SEND_SECONDS)

    def send(self, fds: list[int]) -> None:
        """Hand over copies of the descriptors of one order; OSError: the server is gone, and never got them."""
        socket.send_fds(self._socket, [_ORDER], fds)

    def end(self) -> None:
        """Close the socket, at which it ends; one that does not is killed. Its guards feel nothing of either."""
        self._socket.close()
        if not wait_for_end(self._who, _END_SECONDS):
            self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """End it at once: it is dead, or frozen with orders that it was sent; those go with it."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


def main(fd: int, name: str) -> int:
    """Be the server: import, say so, fork a guard per order, end when the worker does."""
    orders = socket.socket(fileno=fd)
    orders.set_inheritable(False)
    set_name("gitops-zygote")  # also binds the C library here, once, and not in every fork
    try:
        parts = _load(name)()
        _require_one_thread()
    except Exception as error:  # noqa: BLE001  # the worker says it; there is nobody else to tell
        orders.send(f"{type(error).__name__}: {error}".encode()[:_MESSAGE_LIMIT])
        return 1
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # it becomes the log of each run
    gc.collect()
    gc.freeze()  # keeps the pages shared: no collection ever touches what is imported now
    gc.disable()
    orders.send(_READY)
    _serve(orders, parts)
    return 0


def _load(name: str) -> Callable[[], Parts]:
    module, _, attribute = name.partition(":")
    factory: Callable[[], Parts] = getattr(importlib.import_module(module), attribute)
    return factory


def _require_one_thread() -> None:
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208  # names alone
    if threads != 1:
        raise RuntimeError(f"an imported module started {threads - 1} thread(s); a process that forks must have one")


def _serve(orders: socket.socket, parts: Parts) -> None:
    while True:
        message, fds, _, _ = socket.recv_fds(orders, len(_ORDER), _DESCRIPTORS)
        for number in fds:
            os.set_inheritable(number, False)  # recv_fds leaves them inheritable, whatever its flags say
        if not message:
            return
        if len(fds) == _DESCRIPTORS:
            _take(orders, parts, fds)
        else:  # too many open files; the worker notices that the line is closed
            for number in fds:
                os.close(number)


def _take(orders: socket.socket, parts: Parts, fds: list[int]) -> None:
    page_fd, token_fd, order_fd, line = fds
    board = Board(page_fd, token_fd)
    os.close(page_fd)
    try:
        fork("gitops-guard", board, lambda: _guard(orders, parts, board, order_fd, line))
    except OSError as error:
        board.failure = f"no process could be started: {error}"
    board.close()
    os.close(order_fd)
    os.close(line)


def _guard(orders: socket.socket, parts: Parts, board: Board, order_fd: int, line: int) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or waitpid would say that there are no children
    orders.close()
    order = Order.from_json(os.pread(order_fd, os.fstat(order_fd).st_size, 0))
    os.close(order_fd)
    return guard(order, parts, board, line=line)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
