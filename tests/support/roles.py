"""Roles of the fleet as processes of a test: started with settings, their log kept, never left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gitops_reconciler.settings import Settings

STOP_SECONDS = 45.0
REPOSITORY = Path(__file__).parents[2]


@dataclass
class RoleProcess:
    """One process that was started."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def ask_to_end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; answers the exit code."""
        self.ask_to_end(number)
        return self.process.wait(STOP_SECONDS)


@dataclass
class Roles:
    """Starts processes in one folder with one set of variables; ends what still runs with the test."""

    folder: Path
    environ: Mapping[str, str]
    started: list[RoleProcess] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        """The settings that they have, for the test itself."""
        names = {name.removeprefix("GITOPS_").lower(): value for name, value in self.environ.items()}
        return Settings.model_validate({name: value for name, value in names.items() if name in Settings.model_fields})

    def start(
        self, module: str, *arguments: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> RoleProcess:
        """Start `python -m module` with more variables."""
        return self.run([sys.executable, "-m", module, *arguments], cwd=cwd, environ=environ)

    def run(
        self, command: Sequence[str], *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> RoleProcess:
        """Start a command."""
        log = self.folder / f"{len(self.started)}.log"
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
        path = os.pathsep.join([str(REPOSITORY), *filter(None, [inherited.get("PYTHONPATH")])])
        variables = {**inherited, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **self.environ, **(environ or {})}
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=cwd or self.folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self.started.append(RoleProcess(process, log))
        return self.started[-1]

    def end_all(self) -> None:
        """End what still runs."""
        for role in self.started:
            if role.process.poll() is None:
                role.process.terminate()
        for role in self.started:
            try:
                role.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                role.process.kill()
                role.process.wait()


@contextmanager
def running_roles(folder: Path, **environ: str) -> Iterator[Roles]:
    """Processes that share a folder and variables."""
    folder.mkdir(parents=True, exist_ok=True)
    # A worker that a test leaves with a run under way does not wait for it.
    roles = Roles(folder, {"GITOPS_STATE_DIR": str(folder / "state"), "GITOPS_WORKER_GRACE": "1s", **environ})
    try:
        yield roles
    finally:
        roles.end_all()
