"""Clones that people made: in library use a target's `repo` is one, and is made equal to its remote branch.

The same hardened git as for mirrors: a person's own git configuration, ssh agent and credential helpers play no part.
Logins come from `GITOPS_GIT_CREDENTIALS_FILE`, or from the URL in the clone's own `.git/config`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import DeadlineExceededError, RefMissingError, RepositoryUnreachableError, SpecError
from gitops_reconciler.git.base import SyncResult
from gitops_reconciler.git.command import Git
from gitops_reconciler.git.credentials import Credentials, Login, TokenLogin, lent_access, load_credentials
from gitops_reconciler.git.failures import failure
from gitops_reconciler.git.file_locks import hold_file
from gitops_reconciler.git.objects import open_objects
from gitops_reconciler.git.refs import check_branch, describe, is_sha, refspecs, tracking_ref
from gitops_reconciler.git.urls import Remote, check_url, parse_remote, without_credentials
from gitops_reconciler.git.work_trees import WorkTree
from gitops_reconciler.processes import Runner, SubprocessRunner
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.secrets import ReferencedSecrets
from gitops_reconciler.settings import load_settings

_FETCH = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-gc")
_TURNS = 3  # how many timeouts a sync may take as a whole: a wait for the clone, the fetch, the files


def sync_git(repo: Path, branch: str = "main") -> SyncResult:
    """Fetch the branch from the clone's `origin`, and make all tracked files equal to it; untracked ones stay.

    Uses the settings of this process. Local commits and edits of tracked files are dropped, as `git reset --hard` does.

    Raises:
        GitError: the fetch failed; the tree is as it was.
        CheckoutBlockedError: an untracked path lies in the way; the tree is as it was.
        SpecError: no clone, no origin, or one that may not be used.

    """
    return local_clones().sync(repo, branch)


def current_sha(repo: Path) -> str:
    """Return the full SHA that a clone's HEAD is at.

    Raises:
        RefMissingError: there is no commit yet. SpecError: no clone.

    """
    return local_clones().current_sha(repo)


def origin_of(repo: Path) -> tuple[str | None, str | None]:
    """Return the URL of a clone's `origin`, without credentials, and its branch; None for what it does not have."""
    return local_clones().origin_of(repo)


def local_clones() -> Clones:
    """Return what works on clones with the settings and environment of this process."""
    settings, redactor = load_settings(), Redactor()
    secrets = ReferencedSecrets(folder=settings.secrets_dir, environ=os.environ, redactor=redactor)
    return Clones(
        runner=SubprocessRunner(),
        credentials=load_credentials(settings.git_credentials_file, secrets),
        allow_local=settings.git_allow_local,
        timeout_seconds=settings.git_timeout.total_seconds(),
        redactor=redactor,
        environ=os.environ,
    )


@dataclass(frozen=True, slots=True)
class _Clone:
    """One clone, and how git is asked about it."""

    git: Git
    tree: Path
    git_dir: Path
    deadline: Deadline

    def ask(self, *arguments: str) -> str:
        """Return what git answers; nothing where it knows nothing."""
        done = self.git.run(*arguments, git_dir=self.git_dir, deadline=self.deadline)
        return done.data.strip() if done.returncode == 0 else ""

    def origin(self) -> str:
        return self.ask("config", "--local", "--get", "remote.origin.url")

    def commit_at(self, ref: str) -> str | None:
        sha = self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        return sha if is_sha(sha) else None

    @property
    def lock(self) -> Path:
        """Our lock, inside the repository: of a linked worktree or submodule `.git` is a file that names it."""
        folder = self.git_dir
        if folder.is_file():
            named = folder.read_text(encoding="utf-8", errors="surrogateescape").partition("gitdir:")[2].strip()
            folder = (self.tree / named).resolve()
        return folder / "gitops-busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clones:
    """Works on clones that exist; makes none, and removes nothing untracked."""

    runner: Runner
    credentials: Credentials
    allow_local: Path | None
    timeout_seconds: float = 120.0
    redactor: Redactor = field(default_factory=Redactor)
    environ: Mapping[str, str] = field(default_factory=dict)

    def sync(self, repo: Path, branch: str = "main") -> SyncResult:
        """Fetch and hard reset; see `sync_git`."""
        ref = check_branch(branch)
        clone = self._clone(repo)
        remote, login = self._origin(clone)
        # Targets may share a clone: one fetch and one reset at a time.
        with hold_file(clone.lock, of=f"'{clone.tree}'", deadline=clone.deadline) as lock_fd:
            self._fetch(clone, remote, login, ref, lock_fd)
            sha = clone.commit_at(tracking_ref(ref))
            if sha is None:
                raise RefMissingError(f"{describe(ref)} of '{remote.address}' names no commit")
            work_tree = WorkTree(
                git=clone.git,
                tree=clone.tree,
                git_dir=clone.git_dir,
                address=remote.address,
                redactor=self.redactor,
                lock_fd=lock_fd,
            )
            return _reset(work_tree, clone.commit_at("HEAD"), sha, clone.deadline)

    def current_sha(self, repo: Path) -> str:
        """Return the full SHA of HEAD; see the function of this name."""
        clone = self._clone(repo)
        sha = clone.commit_at("HEAD")
        if sha is None:
            raise RefMissingError(f"'{clone.tree}' has no commit yet")
        return sha

    def origin_of(self, repo: Path) -> tuple[str | None, str | None]:
        """Return URL and branch; see the function of this name."""
        clone = self._clone(repo)
        url, branch = clone.origin(), clone.ask("symbolic-ref", "--quiet", "--short", "HEAD")
        return without_credentials(url) if url else None, branch or None

    def _clone(self, repo: Path) -> _Clone:
        """Return the clone in a folder: nothing above it is ever taken for it (G16)."""
        tree = repo.resolve()
        if not (tree / ".git").exists():
            raise SpecError(f"'{tree}' is no git clone (it has no .git)")
        # git starts in the folder above, never inside content (G23).
        git = Git(runner=self.runner, folder=tree.parent, environ=self.environ)
        return _Clone(git, tree, tree / ".git", Deadline.after(_TURNS * self.timeout_seconds))

    def _origin(self, clone: _Clone) -> tuple[Remote, Login | None]:
        """Return where the clone comes from, and its login: of the credentials file, else of the URL itself."""
        url = clone.origin()
        if not url:
            raise SpecError(f"clone '{clone.tree}' has no remote 'origin': add one with `git remote add origin URL`")
        parsed = parse_remote(url)
        allow_http = parsed.scheme == "http" and self.credentials.permits_http(parsed)
        remote = check_url(parsed.address, self.allow_local, allow_http=allow_http)
        login = None if remote.is_local else self.credentials.login_for(remote)
        if login is None and remote.scheme != "ssh" and (parsed.user or parsed.password):
            login = TokenLogin(username=parsed.user, password=parsed.password)
        return remote, login

    def _fetch(self, clone: _Clone, remote: Remote, login: Login | None, ref: str, lock_fd: int) -> None:
        arguments = (*_FETCH, "--end-of-options", remote.address, *refspecs(ref))
        try:
            with (
                TemporaryDirectory(prefix="gitops-login-") as private,
                lent_access(remote, login, Path(private) / "login", self.redactor) as access,
            ):
                limit = clone.deadline.sooner(self.timeout_seconds)
                done = clone.git.run(*arguments, git_dir=clone.git_dir, access=access, deadline=limit, lock_fd=lock_fd)
        except DeadlineExceededError as error:
            raise RepositoryUnreachableError(
                f"'{remote.address}' did not answer within {self.timeout_seconds:g} s; it is tried again"
            ) from error
        if done.returncode:
            raise failure(done, doing=f"fetch of {describe(ref)} from '{remote.address}'", redactor=self.redactor)


def _reset(work_tree: WorkTree, head: str | None, sha: str, deadline: Deadline) -> SyncResult:
    with open_objects(work_tree.git, work_tree.git_dir) as objects:
        new = objects.known_commit(sha, work_tree.address)
        old = objects.commit(head) if head is not None else None
        done = SyncResult(tree=work_tree.tree, old=head, new=sha, subject=new.subject)
        changed = work_tree.changed_paths(deadline) if old is not None else None
        if head == sha and changed is not None and not work_tree.really_changed(objects, new, changed):
            return done
        work_tree.refuse_what_is_unsafe(objects, new, old=old, changed=changed, within="", deadline=deadline)
        work_tree.run("reset", "--quiet", "--hard", sha, doing=f"reset to {sha[:12]}", deadline=deadline)
        work_tree.verify(objects, new, deadline)
    return done
