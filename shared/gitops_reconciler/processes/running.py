"""Runs one command to its end: output, deadline, interruption, and nothing of it left."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

from gitops_reconciler.clock import Deadline, boottime
from gitops_reconciler.errors import DeadlineExceededError, InterruptedRunError, ReconcileError
from gitops_reconciler.processes.base import Finished, OnLine
from gitops_reconciler.processes.ending import MARK, Interrupts, Watcher, end_group, end_marked, kill_marked
from gitops_reconciler.processes.output import READ_SIZE, Output
from gitops_reconciler.processes.starting import DEVNULL, PIPE, Child, popen
from gitops_reconciler.redaction import Redactor

_OUTPUT_LIMIT = 4 << 20
_NAP_SECONDS = 0.5  # select() waits on CLOCK_MONOTONIC, which stands still while the machine sleeps
_NAP_WITHOUT_PIDFD_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SubprocessRunner:
    """The real thing."""

    own_group: bool = True
    """False inside a supervised run: the supervisor signals the run's group, so we forward nothing."""
    grace_seconds: float = 25.0
    lock_fd: int | None = None
    """The lock of the target: tools inherit it, so that a leftover keeps the next run out. Negative: there is none."""
    redactor: Redactor | None = None
    output_limit: int = _OUTPUT_LIMIT

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
        """Run the command; see the contract."""
        tool = Path(argv[0]).name
        if not cwd.is_dir():
            raise ReconcileError(f"'{tool}' was not started: the folder '{cwd}' does not exist")
        if deadline.is_over:
            raise DeadlineExceededError(f"'{tool}' was not started: the deadline of the run is over")
        lock = () if self.lock_fd is None or self.lock_fd < 0 else (self.lock_fd,)
        fds = (*pass_fds, *lock)
        with ExitStack() as stack:
            interrupts = stack.enter_context(Interrupts())
            mark = uuid4().hex
            watch = self._watch(stack, mark, fds)
            # A session of its own, not only a group: without a terminal no tool can stop to ask somebody.
            with _Pipes() as pipes:
                child = popen(
                    argv,
                    cwd=cwd,
                    env={**env, MARK: mark},
                    stdin=PIPE if stdin else DEVNULL,
                    stdout=pipes.out.writer,
                    stderr=pipes.err.writer,
                    pass_fds=(*fds, pipes.out.reader, pipes.err.reader),
                    new_session=self.own_group,
                )
                if watch is not None:
                    watch.watch(child.pid)
                outputs = [self._output("stdout", pipes.out, on_line), self._output("stderr", pipes.err, on_line)]
            run = _Run(self, child, mark, outputs, stdin=stdin, deadline=deadline, interrupts=interrupts)
            run.follow_to_the_end()
        finished = run.finished(tuple(argv))
        self._raise_if_ended_early(finished, tool)
        return finished

    def _output(self, name: str, pipe: _Pipe, on_line: OnLine | None) -> Output:
        reader = os.fdopen(pipe.take_reader(), "rb", buffering=0)
        return Output(name, reader, redactor=self.redactor, limit=self.output_limit, on_line=on_line)

    def _watch(self, stack: ExitStack, mark: str, fds: Sequence[int]) -> Watcher | None:
        if not self.own_group:
            return None
        return stack.enter_context(Watcher(mark=mark, grace_seconds=self.grace_seconds, pass_fds=fds))

    def _raise_if_ended_early(self, finished: Finished, tool: str) -> None:
        if finished.interrupted and self.own_group:
            raise KeyboardInterrupt
        after = f"after {finished.seconds:.1f} s"
        if finished.interrupted:
            raise InterruptedRunError(f"'{tool}' was interrupted {after}: the run has to end")
        if finished.timed_out:
            raise DeadlineExceededError(f"'{tool}' timed out {after} and was ended")


class _Pipe:
    """A pipe whose two ends are closed with it, unless they were taken."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def take_reader(self) -> int:
        reader, self.reader = self.reader, -1
        return reader

    def close(self) -> None:
        for end in {self.reader, self.writer} - {-1}:
            os.close(end)


class _Pipes:
    """Stdout and stderr of a tool, which inherits both ends of both.

    So it does not die by SIGPIPE at the next line when we are killed: Terraform would, and lose what it was creating.
    It lives until it is interrupted by whoever watches over us, and its end of the writing alone is what we wait for.
    """

    def __init__(self) -> None:
        self.out = _Pipe()
        try:
            self.err = _Pipe()
        except OSError:
            self.out.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.out.close()
        self.err.close()


class _Run:
    """One child from its start to its end."""

    def __init__(
        self,
        runner: SubprocessRunner,
        child: Child,
        mark: str,
        outputs: Sequence[Output],
        *,
        stdin: bytes,
        deadline: Deadline,
        interrupts: Interrupts,
    ) -> None:
        self._runner, self._child, self._mark = runner, child, mark
        self._deadline, self._interrupts = deadline, interrupts
        self._stdin = memoryview(stdin)
        self._started_at = boottime()
        self._outputs = outputs
        self._kill_at: float | None = None
        self._is_killed = self._timed_out = False
        self._pidfd = _open_pidfd(child.pid)

    def follow_to_the_end(self) -> None:
        """Return when the tool and what it left in its group are gone, whatever happens meanwhile."""
        try:
            with selectors.DefaultSelector() as selector:
                self._register(selector)
                try:
                    self._follow(selector)
                except BaseException:
                    for output in self._outputs:
                        output.on_line = None  # it may be what failed
                    self._stop()
                    self._follow(selector)
                    raise
        finally:
            self._tidy()

    def _register(self, selector: selectors.BaseSelector) -> None:
        """Have everything that can happen wake us; what comes with a pipe is called, and False ends its part."""
        for output in self._outputs:
            selector.register(output.pipe, selectors.EVENT_READ, lambda output=output: output.read() != 0)
        if self._child.stdin is not None:
            os.set_blocking(self._child.stdin.fileno(), False)
            selector.register(self._child.stdin, selectors.EVENT_WRITE, self._feed)
        if self._pidfd is not None:
            selector.register(self._pidfd, selectors.EVENT_READ, lambda: True)
        if self._interrupts.wake is not None:
            selector.register(self._interrupts.wake, selectors.EVENT_READ, self._interrupts.swallow)

    def _follow(self, selector: selectors.BaseSelector) -> None:
        while not self._has_ended():
            self._enforce()
            for key, _ in selector.select(self._nap_seconds()):
                if not key.data():
                    selector.unregister(key.fileobj)
                    if key.fileobj is self._child.stdin:
                        self._child.stdin.close()

    def _has_ended(self) -> bool:
        """Whether the tool is dead; it stays unreaped, so that its number is still its own."""
        return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _nap_seconds(self) -> float:
        nap = _NAP_WITHOUT_PIDFD_SECONDS if self._pidfd is None else _NAP_SECONDS
        if self._is_killed:
            return nap
        if self._kill_at is not None:
            return min(nap, max(0.0, self._kill_at - boottime()))
        remaining = self._deadline.remaining_seconds
        return nap if remaining is None else min(nap, remaining)

    def _feed(self) -> bool:
        """Write what the pipe takes; False when all is written or the tool wants no more."""
        if self._child.stdin is not None:
            try:
                written = os.write(self._child.stdin.fileno(), self._stdin[:READ_SIZE])
            except BlockingIOError:
                return True
            except BrokenPipeError:
                return False
            self._stdin = self._stdin[written:]
        return bool(self._stdin)

    def _enforce(self) -> None:
        asked = self._interrupts.count
        if self._kill_at is None:
            if self._runner.own_group and asked:
                self._stop()
            elif self._deadline.is_over and not asked:
                # In a shared group an interrupted tool has had its SIGINT; at a second one Terraform gives up its state
                self._timed_out = True
                self._stop()
        elif not self._is_killed and (boottime() >= self._kill_at or (self._runner.own_group and asked > 1)):
            self._is_killed = True
            self._signal(signal.SIGKILL)

    def _stop(self) -> None:
        """SIGINT now and SIGKILL after the grace; asked again, SIGKILL at once."""
        if self._kill_at is None:
            self._kill_at = boottime() + self._runner.grace_seconds
            self._signal(signal.SIGINT)
        else:
            self._kill_at = boottime()

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group or, in a shared one, the tool: only while it is unreaped."""
        with suppress(ProcessLookupError, PermissionError):
            if self._runner.own_group:
                os.killpg(self._child.pid, number)
            else:
                os.kill(self._child.pid, number)
        if number is signal.SIGKILL:
            kill_marked(self._mark)

    def _tidy(self) -> None:
        if not self._has_ended():
            self._signal(signal.SIGKILL)  # we were torn out of the wait twice
        elif self._runner.own_group:
            self._signal(signal.SIGTERM)  # for what it left in the background; the dead tool itself feels nothing
        self._child.wait()
        if self._runner.own_group:
            end_group(self._child.pid)
        if self._kill_at is not None:
            end_marked(self._mark)
        for output in self._outputs:
            output.finish()
        if self._child.stdin is not None:
            self._child.stdin.close()
        if self._pidfd is not None:
            os.close(self._pidfd)

    def finished(self, argv: tuple[str, ...]) -> Finished:
        """Return what is known of the ended child."""
        out, err = self._outputs
        return Finished(
            argv=argv,
            returncode=self._child.returncode,
            stdout=out.kept.text(),
            stderr=err.kept.text(),
            seconds=boottime() - self._started_at,
            timed_out=self._timed_out,
            interrupted=self._interrupts.count > 0,
            is_cut=out.is_cut or err.is_cut,
            raw_stdout=out.raw.text(),
        )


def _open_pidfd(pid: int) -> int | None:
    with suppress(AttributeError, OSError):  # not on this system, or closed by a sandbox
        return os.pidfd_open(pid)
    return None
