"""The git layer over real git, with a runner that a test can count, hold up and look into."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gitops_reconciler.clock import Deadline
from gitops_reconciler.git.base import Repository, Revision, SyncResult
from gitops_reconciler.git.clones import Clones
from gitops_reconciler.git.credentials import Credentials, NoCredentials, load_credentials
from gitops_reconciler.git.mirror_folders import MirrorFolder
from gitops_reconciler.git.mirrors import GitMirrors, Latest
from gitops_reconciler.git.urls import parse_remote
from gitops_reconciler.processes import Finished, OnLine, SubprocessRunner
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.secrets import ReferencedSecrets

PATIENCE_SECONDS = 30.0


@dataclass
class WatchedRunner:
    """The real runner. It counts commands, and holds up those with a word in them until the test lets go."""

    real: SubprocessRunner = field(default_factory=lambda: SubprocessRunner(grace_seconds=2.0))
    commands: list[tuple[str, ...]] = field(default_factory=list)
    held_word: str = ""
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

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
        self.commands.append(tuple(argv))
        if self.held_word and self.held_word in argv:
            self.reached.set()
            if not self.release.wait(PATIENCE_SECONDS):
                raise AssertionError("nobody let the command go on")
        return self.real.run(argv, cwd=cwd, env=env, deadline=deadline, stdin=stdin, on_line=on_line, pass_fds=pass_fds)

    def count(self, word: str) -> int:
        """How many commands had this word."""
        return sum(word in argv for argv in self.commands)


@dataclass
class GitLab:
    """Mirrors, checkouts and clones below one folder."""

    root: Path
    allow_local: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    runner: WatchedRunner = field(default_factory=WatchedRunner)
    redactor: Redactor = field(default_factory=Redactor)
    timeout_seconds: float = PATIENCE_SECONDS

    @property
    def state(self) -> Path:
        """What stands for the state folder."""
        return self.root / "state"

    def write_credentials(self, entries: str, **secrets: str) -> Credentials:
        """Credentials of a file with these entries and these secrets."""
        folder = self.root / "secrets"
        folder.mkdir(exist_ok=True)
        for name, value in secrets.items():
            (folder / name).write_text(value, encoding="utf-8", newline="")
        path = folder / "credentials.yaml"
        path.write_text(entries, encoding="utf-8")
        path.chmod(0o600)
        return load_credentials(path, ReferencedSecrets(folder=folder, environ={}, redactor=self.redactor))

    def mirrors(self, credentials: Credentials | None = None, latest: Latest | None = None) -> GitMirrors:
        """New mirrors over the same folder: what another process would have."""
        return GitMirrors(
            self.state / "git" / "mirror",
            credentials=credentials or NoCredentials(),
            allow_local=self.allow_local,
            runner=self.runner,
            timeout_seconds=self.timeout_seconds,
            redactor=self.redactor,
            latest=latest,
            environ=self.environ,
        )

    def clones(self, credentials: Credentials | None = None) -> Clones:
        """What works on clones of people."""
        return Clones(
            runner=self.runner,
            credentials=credentials or NoCredentials(),
            allow_local=self.allow_local,
            timeout_seconds=self.timeout_seconds,
            redactor=self.redactor,
            environ=self.environ,
        )

    def mirror_of(self, url: str) -> Path:
        """The bare repository of a URL's mirror."""
        return MirrorFolder.of(self.state / "git" / "mirror", parse_remote(url)).git_dir

    def tree(self, name: str = "web") -> Path:
        """The checkout of a target."""
        return self.state / "git" / "trees" / name

    def fetch(self, url: str, ref: str = "refs/heads/main", asked: tuple[str, int] | None = None) -> Revision:
        """Fetch with mirrors of its own."""
        return self.mirrors().fetch(Repository(url=url, ref=ref), asked=asked, deadline=soon())

    def deploy(self, url: str, *, ref: str = "refs/heads/main", name: str = "web") -> SyncResult:
        """Fetch and check out, as a run does."""
        mirrors, repository = self.mirrors(), Repository(url=url, ref=ref)
        revision = mirrors.fetch(repository, asked=None, deadline=soon())
        return mirrors.checkout(repository, revision.sha, self.tree(name), keep=name, deadline=soon())


def soon() -> Deadline:
    """A deadline that only a test that hangs would meet."""
    return Deadline.after(PATIENCE_SECONDS)


def text_files(tree: Path) -> dict[str, str]:
    """The files of a checkout, without its repository: path -> content."""
    return {
        path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(tree.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(tree).parts
    }


def processes_with(text: str) -> dict[int, str]:
    """The living processes of this machine whose command line contains a text: pid -> command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if text in line:
            found[int(folder.name)] = line
    return found
