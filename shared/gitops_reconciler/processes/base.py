"""The contract of running a command, and what is known of one that ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gitops_reconciler.clock import Deadline

OnLine = Callable[[str, str], None]
"""Called with the stream (`stdout` or `stderr`) and one line without its newline: redacted, always valid unicode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A command that ended. Both texts are redacted, and of long ones the beginning and the end are kept.

    Bytes that are no UTF-8 are kept as surrogate escapes.
    """

    argv: tuple[str, ...]
    returncode: int
    """Negative: the signal that ended it."""
    stdout: str
    stderr: str
    seconds: float = 0.0
    timed_out: bool = False
    interrupted: bool = False
    is_cut: bool = False
    """Whether a part of the output was too much to be kept."""
    raw_stdout: str | None = field(default=None, repr=False)

    @property
    def data(self) -> str:
        """Return stdout as the tool wrote it: for parsing only, it may hold secrets."""
        return self.stdout if self.raw_stdout is None else self.raw_stdout


class Runner(Protocol):
    """Runs one command to its end."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        deadline: Deadline,
        stdin: bytes = b"",
        on_line: OnLine | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Finished:
        """Run the command with exactly this environment and a mark of ours; without `stdin` it reads from /dev/null.

        Raises:
            ToolMissingError: the executable is not on the PATH of `env`.
            DeadlineExceededError: it took too long and was ended.
            InterruptedRunError: the whole run was told to end meanwhile.
            ReconcileError: it could not be started.

        """
        ...
