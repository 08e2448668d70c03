"""Tools for a backend under test: a log and a marker in memory, and a runner that replays recorded commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gitops_reconciler.backends.base import Tools
from gitops_reconciler.clock import Deadline, SystemClock
from gitops_reconciler.errors import ToolMissingError
from gitops_reconciler.processes import Finished, OnLine, Runner
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.secrets import ReferencedSecrets


@dataclass(slots=True)
class MemoryLog:
    """Keeps what a run would have logged."""

    lines: list[str] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)

    def line(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)

    def phase(self, name: str) -> None:
        """Keep the name of a phase."""
        self.phases.append(name)

    def tool(self, name: str, version: str) -> None:
        """Keep a tool's version."""
        self.tools[name] = version

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)


@dataclass(slots=True)
class MemoryMarker:
    """Keeps one text."""

    value: str | None = None

    def get(self) -> str | None:
        """Return the text."""
        return self.value

    def set(self, value: str | None) -> None:
        """Replace the text."""
        self.value = value


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One command as it was once recorded: matched by words of its arguments, answered by what it said."""

    words: tuple[str, ...]
    returncode: int = 0
    stdout: str = ""
    stderr: str = ""
    effect: Callable[[Call], None] | None = None
    """What the command did besides talking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One command that a backend asked for."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    stdin: bytes


@dataclass(slots=True)
class ReplayingRunner:
    """Answers commands with recorded ones, the first that matches; a command that nobody recorded is a missing tool.

    A recording is used up by its first use, except for the last one that matches.
    """

    recorded: list[Recorded]
    calls: list[Call] = field(default_factory=list)

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
        """Replay the recording of this command."""
        call = Call(argv=tuple(argv), cwd=cwd, env=dict(env), stdin=stdin)
        self.calls.append(call)
        found = self._take(call)
        if found.effect is not None:
            found.effect(call)
        if on_line is not None:
            for stream, text in (("stdout", found.stdout), ("stderr", found.stderr)):
                for line in text.splitlines():
                    on_line(stream, line)
        return Finished(argv=call.argv, returncode=found.returncode, stdout=found.stdout, stderr=found.stderr)

    def commands(self) -> list[str]:
        """Return the second word of each command: what the tool was told to do."""
        return [call.argv[1] for call in self.calls]

    def _take(self, call: Call) -> Recorded:
        matching = [one for one in self.recorded if set(one.words) <= set(call.argv)]
        if not matching:
            raise ToolMissingError(f"nobody recorded {' '.join(call.argv)}")
        if len(matching) > 1:
            self.recorded.remove(matching[0])
        return matching[0]


def make_tools(
    runner: Runner,
    *,
    env: Mapping[str, str] | None = None,
    log: MemoryLog | None = None,
    deadline: Deadline | None = None,
    redactor: Redactor | None = None,
) -> Tools:
    """Return tools around a runner, with parts in memory for the rest."""
    return Tools(
        runner=runner,
        clock=SystemClock(),
        env=dict(env or {}),
        log=log or MemoryLog(),
        marker=MemoryMarker(),
        secrets=ReferencedSecrets(folder=None, environ={}, redactor=redactor or Redactor()),
        deadline=deadline or Deadline(),
    )
