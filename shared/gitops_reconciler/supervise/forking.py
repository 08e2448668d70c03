"""The one place that forks: a child does its step and leaves, and never unwinds into what its parent was doing."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from gitops_reconciler.redaction import printable, redact_url
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.linux import set_name

FAILED = 1
INTERRUPTED = 130  # as a shell says it


def fork(name: str, board: Board, step: Callable[[], int]) -> int:
    """Fork a child that shows this name, exits with what the step returns, and tells the board what went wrong."""
    child = os.fork()
    if child == 0:
        _leave_after(name, board, step)
    return child


def _leave_after(name: str, board: Board, step: Callable[[], int]) -> None:
    code = FAILED
    try:
        set_name(name)
        code = step()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:  # noqa: BLE001  # the outer edge of this process
        _report(board, error)
    finally:
        try:
            sys.stdout.flush()
        finally:
            os._exit(code)


def _report(board: Board, error: BaseException) -> None:
    """Say what it died of. No secret is known by value here; what shows one by its form is masked."""
    if not isinstance(error, BrokenPipeError):  # who would have read it was killed: that is no failure of the run
        board.failure = f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(printable(redact_url("".join(traceback.format_exception(error)))))


def attach_log(path: Path) -> None:
    """Let stdin be empty, and stdout and stderr of this process and its children the log of the run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)
    os.close(log)


def stop_on_sigterm(board: Board) -> None:
    """Take SIGTERM of a keeper as the wish that the run ends, and let no terminal or shell end us otherwise."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: board.ask_stop())
