"""The demo's scratch folder: a bare remote, a working clone with its own identity, and what the targets manage."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import ReconcileError
from gitops_reconciler.processes import Finished, SubprocessRunner

_GIT_SECONDS = 30.0
_BRANCH = "main"
_TEMPORARY = "tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What became of a push."""

    sha: str
    hook_said: str
    """What the remote's hook said of its webhook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Paths below one temporary folder, and the git commands that the demo types."""

    root: Path
    env: Mapping[str, str]

    @property
    def bare(self) -> Path:
        """The remote: what a forge would be."""
        return self.root / "infra.git"

    @property
    def clone(self) -> Path:
        """The working clone: where a person edits."""
        return self.root / "infra"

    @property
    def state(self) -> Path:
        """State folder of the demo's fleet."""
        return self.root / "state"

    @property
    def secrets(self) -> Path:
        """Secrets that are referred to by name."""
        return self.root / "secrets"

    @property
    def managed(self) -> Path:
        """What the targets manage: stands for the real world."""
        return self.root / "world"

    def write(self, files: Mapping[str, str]) -> None:
        """Write files of the clone: path -> text."""
        for path, text in files.items():
            file = self.clone / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def push(self, message: str) -> Pushed:
        """Commit everything and push it."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self._pushed()

    def revert(self) -> Pushed:
        """Revert the last commit and push that."""
        self.git("revert", "--no-edit", "HEAD")
        return self._pushed()

    def _pushed(self) -> Pushed:
        done = self._run("push", "--quiet", "origin", _BRANCH)
        told = [line.removeprefix("remote:").strip() for line in done.stderr.splitlines()]
        sha = self.git("rev-parse", "HEAD").strip()
        return Pushed(sha=sha, hook_said="; ".join(line for line in told if line.startswith("webhook")))

    def git(self, *arguments: str, at: Path | None = None) -> str:
        """Run git in the clone, with no configuration but its own; returns its stdout."""
        return self._run(*arguments, at=at).stdout

    def _run(self, *arguments: str, at: Path | None = None) -> Finished:
        finished = SubprocessRunner().run(
            ["git", *arguments], cwd=at or self.clone, env=self.env, deadline=Deadline.after(_GIT_SECONDS)
        )
        if finished.returncode:
            message = f"git {arguments[0]} failed: {(finished.stderr or finished.stdout).strip()}"
            raise ReconcileError(message)
        return finished


def _environment(root: Path) -> dict[str, str]:
    """Return what git, its hook and the fleet start with: nothing of the caller's settings, tools of our own Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITOPS_", "GRID_", "GIT_"))}
    beside_us = str(Path(sys.executable).parent)
    return {
        **kept,
        "PATH": os.pathsep.join([beside_us, kept.get("PATH", os.defpath)]),
        "HOME": str(root),
        "TMPDIR": str(root / _TEMPORARY),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }


@contextmanager
def scratch_folder(*, keep: bool) -> Iterator[Scratch]:
    """Make the folder with an empty remote and a clone of it; it is gone afterwards, unless it is to be kept."""
    root = Path(tempfile.mkdtemp(prefix="gitops-demo-")).resolve()
    scratch = Scratch(root=root, env=_environment(root))
    try:
        for folder in (scratch.bare, scratch.clone, scratch.state, scratch.secrets, scratch.managed, root / _TEMPORARY):
            folder.mkdir(mode=0o700)
        scratch.git("init", "--quiet", "--bare", at=scratch.bare)
        scratch.git("symbolic-ref", "HEAD", f"refs/heads/{_BRANCH}", at=scratch.bare)
        scratch.git("init", "--quiet")
        scratch.git("symbolic-ref", "HEAD", f"refs/heads/{_BRANCH}")
        scratch.git("config", "user.name", "Demo")
        scratch.git("config", "user.email", "demo@localhost")
        scratch.git("remote", "add", "origin", str(scratch.bare))
        yield scratch
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
