"""Scratch git repositories that know nothing of the configuration of the person who runs the tests."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Files = Mapping[str, str | None]
"""Path in the repository to its new content; None removes the file."""


def git_environment() -> dict[str, str]:
    """What git may see: PATH, an identity of its own, and no configuration."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Test Author",
        "GIT_AUTHOR_EMAIL": "author@example.invalid",
        "GIT_COMMITTER_NAME": "Test Author",
        "GIT_COMMITTER_EMAIL": "author@example.invalid",
    }


def git(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run git in a folder and answer its stripped output; a failure raises with what git said."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**git_environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(arguments)} failed with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class GitUpstream:
    """A bare repository as a forge would hold it, and a person's clone to push from."""

    bare: Path
    work: Path
    branch: str = "main"

    @classmethod
    def create(cls, folder: Path, name: str, branch: str = "main") -> "GitUpstream":
        """Make `<name>.git` and its clone below a folder; both are empty."""
        made = cls(bare=folder / f"{name}.git", work=folder / f"{name}.work", branch=branch)
        made.bare.mkdir(parents=True)
        git(made.bare, "init", "--quiet", "--bare", f"--initial-branch={branch}")
        git(folder, "-c", f"init.defaultBranch={branch}", "clone", "--quiet", str(made.bare), str(made.work))
        return made

    @property
    def url(self) -> str:
        """The address on this machine."""
        return self.bare.as_uri()

    @property
    def head(self) -> str:
        """Full SHA of what was pushed to the branch."""
        return git(self.bare, "rev-parse", "--verify", f"refs/heads/{self.branch}")

    def commit(self, files: Files, message: str) -> str:
        """Write or remove files, commit the result, even an empty one, and answer the full SHA."""
        for name, content in files.items():
            path = self.work / name
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
        git(self.work, "add", "--all")
        git(self.work, "commit", "--quiet", "--allow-empty", f"--message={message}")
        return git(self.work, "rev-parse", "HEAD")

    def push(self, *refspecs: str, force: bool = False) -> None:
        """Push refspecs, or the current commit to the branch."""
        wanted = refspecs or (f"HEAD:refs/heads/{self.branch}",)
        git(self.work, "push", "--quiet", *(["--force"] if force else []), "origin", *wanted)

    def publish(self, files: Files, message: str) -> str:
        """Commit and push in one go; answers the full SHA."""
        sha = self.commit(files, message)
        self.push()
        return sha


class MakeUpstream(Protocol):
    """The fixture `git_upstream`: makes a repository of a name, once for each name."""

    def __call__(self, name: str, branch: str = "main") -> GitUpstream: ...
