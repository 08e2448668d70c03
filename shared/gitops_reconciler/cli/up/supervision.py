"""Keeps processes running by means of the `supervisor` library, of which no network endpoint is opened.

The library brings the states of a process, the growing delay between starts that fail, and an ordered end. Ours are the
log, the signals, and that nothing is left behind: what a dead child started goes with it, and orphans come to us.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from supervisor import events, loggers
from supervisor.medusa.asyncore_25 import ExitNow
from supervisor.options import ProcessConfig, ProcessGroupConfig, ServerOptions
from supervisor.states import ProcessStates, SupervisorStates
from supervisor.supervisord import Supervisor

from gitops_reconciler.cli.up.lines import Lines
from gitops_reconciler.cli.up.roles import Role
from gitops_reconciler.clock import Deadline
from gitops_reconciler.supervise.linux import adopt_orphans

US = "up"
_STEADY_SECONDS = 5  # an end before that counts as a start that failed
_TRIES = 1 << 30
_ENDING_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP}
_READ_SIZE = 4096


def supervise(roles: Iterable[Role], lines: Lines) -> None:
    """Keep the roles running until a signal, then end them by rank; takes over this process' signals and children.

    At the first SIGINT or SIGTERM everything may end in peace; the second one is passed on, the third one kills.
    """
    adopt_orphans()
    options = _Options(list(roles), lines)
    try:
        _Loop(options, lines).run()
    finally:
        options.wakeup.close()


class _Options(ServerOptions):
    """What the library would read from a file and a command line."""

    def __init__(self, roles: Sequence[Role], lines: Lines) -> None:
        super().__init__()
        self.nodaemon = True
        self.minfds = 3  # every descriptor of ours is closed at exec
        self.strip_ansi = self.test = False
        self.serverurl = None
        self.loglevel = loggers.LevelsByName.ERRO  # what happens is told by the events
        self.logger = loggers.Logger(self.loglevel, [_Narrator(lines)])
        ranked = sorted(roles, key=lambda role: role.rank)
        self.process_group_configs = [
            ProcessGroupConfig(self, f"rank-{rank}", rank, [_process(self, role) for role in group])
            for rank, group in groupby(ranked, key=lambda role: role.rank)
        ]
        self.wakeup = _Wakeup()
        self.last_end = ""

    def openhttpservers(self, _supervisor: Any) -> None:
        """Open nothing."""

    def write_pidfile(self) -> None:
        """Write none; `up.json` is ours."""

    def get_socket_map(self) -> dict[int, Any]:
        """Have the loop woken by signals: else it would look at them once a second."""
        return {self.wakeup.fd: self.wakeup}

    def waitpid(self) -> tuple[int | None, int | None]:
        """Reap a child, and end what is left of its process group while the number is still its own."""
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                if ended.si_pid in self.pidhistory:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(ended.si_pid, signal.SIGKILL)
                pid, status = os.waitpid(ended.si_pid, 0)
                self.last_end = _described(os.waitstatus_to_exitcode(status))
                return pid, status
        return None, None


def _described(code: int) -> str:
    """Return how a process ended, in words."""
    if code >= 0:
        return f"ended with {code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def _process(options: _Options, role: Role) -> ProcessConfig:
    channels = {
        f"{channel}_{name}": value
        for channel in ("stdout", "stderr")
        for name, value in (
            ("logfile", None),
            ("logfile_backups", 0),
            ("logfile_maxbytes", 0),
            ("capture_maxbytes", 0),
            ("events_enabled", channel == "stdout"),
            ("syslog", False),
        )
    }
    return ProcessConfig(
        options,
        name=role.name,
        command=shlex.join(role.tethered()),
        environment={**os.environ, **role.environment},
        directory=None,
        umask=None,
        uid=None,
        priority=role.rank,
        autostart=True,
        autorestart=_always(),
        startsecs=_STEADY_SECONDS,
        startretries=_TRIES,
        stopsignal=signal.SIGTERM,
        stopwaitsecs=role.stop_seconds,
        stopasgroup=False,
        killasgroup=True,
        exitcodes=[],
        redirect_stderr=True,
        **channels,
    )


def _always() -> Any:
    from supervisor.datatypes import RestartUnconditionally

    return RestartUnconditionally


class _Narrator(loggers.Handler):
    """Puts what the library logs into our log."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: Any) -> None:
        """Write one message."""
        self._lines.say(US, str(record.asdict()["message"]).strip())


class _Wakeup:
    """The read end of the pipe into which the interpreter writes each signal; looks like a dispatcher."""

    def __init__(self) -> None:
        self.fd, self._writer = os.pipe()
        for descriptor in (self.fd, self._writer):
            os.set_blocking(descriptor, False)
        self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def handle_read_event(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.fd, _READ_SIZE)

    def handle_error(self) -> None:
        """Nothing here can fail for long."""

    def close(self) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self.fd)
        os.close(self._writer)


class _Loop(Supervisor):
    """The library's loop with our log and our way to end."""

    def __init__(self, options: _Options, lines: Lines) -> None:
        super().__init__(options)
        self._lines = lines
        self._wishes_to_end = 0

    def runforever(self) -> None:
        """Run until everything has ended."""
        events.subscribe(events.ProcessLogEvent, lambda event: self._lines.add(event.process.config.name, event.data))
        for kind, say in self._sayings():
            events.subscribe(kind, say)
        with suppress(ExitNow):
            super().runforever()

    def handle_signal(self) -> None:
        """Begin to end at the first signal, hurry at the next ones."""
        number = self.options.get_signal()
        if number not in _ENDING_SIGNALS:
            return
        self._wishes_to_end += 1
        if self._wishes_to_end == 1:
            self._lines.say(US, f"{signal.Signals(number).name}: ending in order; once more interrupts what runs")
            self.options.mood = SupervisorStates.SHUTDOWN
            return
        self._lines.say(US, "interrupting" if self._wishes_to_end == 2 else "killing")  # noqa: PLR2004  # count
        for process in self._ending():
            if self._wishes_to_end == 2:  # noqa: PLR2004  # as above
                process.signal(signal.SIGTERM)
            else:
                process.delay = 0  # its time is up

    def _ending(self) -> list[Any]:
        processes = (process for group in self.process_groups.values() for process in group.processes.values())
        return [process for process in processes if process.state == ProcessStates.STOPPING]

    def _sayings(self) -> Iterable[tuple[type[Any], Callable[[Any], None]]]:
        def say(event: Any, text: str) -> None:
            self._lines.end(event.process.config.name)
            self._lines.say(US, f"{event.process.config.name} {text}")

        def exited(event: Any) -> None:
            say(event, f"{self.options.last_end}; starting it again")

        def failed(event: Any) -> None:
            why = self.options.last_end if event.process.pid else event.process.spawnerr
            say(event, f"{why}; next try in {event.process.backoff} s")

        def stopped(event: Any) -> None:
            say(event, self.options.last_end)

        yield events.ProcessStateExitedEvent, exited
        yield events.ProcessStateBackoffEvent, failed
        yield events.ProcessStateStoppedEvent, stopped


def end_leftovers(seconds: float, say: Callable[[str], None]) -> None:
    """End whatever is still below us: a wish, then after so many seconds a kill, until there is no child left."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        deadline = Deadline.after(seconds)
        asked: set[int] = set()
        while _reap():
            children = _children()
            for child in children:
                if deadline.is_over:
                    os.kill(child, signal.SIGKILL)
                elif child not in asked:
                    asked.add(child)
                    os.kill(child, signal.SIGTERM)  # to the keepers of a run: interrupt it
            if asked and len(asked) == len(children):
                say(f"waiting for {len(children)} process(es) of runs")
            signal.sigtimedwait({signal.SIGCHLD}, 0.5)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _reap() -> bool:
    """Reap who has ended; False when we have no children any more."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split()]
