"""The only module that imports `subprocess`: finds an executable and starts it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gitops_reconciler.errors import ReconcileError, ToolMissingError

PIPE = subprocess.PIPE
DEVNULL = subprocess.DEVNULL
Child = subprocess.Popen[bytes]


def popen(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: int | IO[bytes] | None = DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
    new_session: bool = False,
) -> Child:
    """Start a process that lives on beside us (a server, a child of `gitops up`); ending it is the caller's duty.

    Raises:
        ToolMissingError: the executable is not on the PATH of `env`.
        ReconcileError: it could not be started.

    """
    executable = find_executable(argv[0], cwd=cwd, env=env)
    with _clear_errors(argv[0]):
        return subprocess.Popen(
            list(argv),
            executable=executable,
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=new_session,
        )


def find_executable(tool: str, *, cwd: Path, env: Mapping[str, str]) -> str:
    """Return the absolute path of a tool, by the PATH of the environment that it will get.

    Raises:
        ToolMissingError: it is not there; the message names it and where it was looked for.

    """
    has_folder = "/" in tool
    search = env.get("PATH", os.defpath)
    found = shutil.which(str(cwd / tool) if has_folder else tool, path=search)
    if found is None:
        where = "" if has_folder else f" on PATH ({search})"
        raise ToolMissingError(f"'{tool}' was not found{where}: install it on this machine")
    return str(Path(found).absolute())


@contextmanager
def _clear_errors(tool: str) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a zero byte in an argument or a variable
        why = getattr(error, "strerror", None) or error
        raise ReconcileError(f"'{tool}' could not be started: {why}") from error
