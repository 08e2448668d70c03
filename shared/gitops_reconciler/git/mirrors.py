"""Bare mirrors below one folder: one per repository URL and host, one fetch for all who asked before it began."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import (
    DiskFullError,
    RefMissingError,
    RepositoryCorruptError,
    SpecError,
    StoreUnavailableError,
)
from gitops_reconciler.git.authorship import Authorship
from gitops_reconciler.git.base import Repository, Revision, SyncResult
from gitops_reconciler.git.checkouts import Checkout
from gitops_reconciler.git.command import Access, Git
from gitops_reconciler.git.credentials import Credentials, lent_access
from gitops_reconciler.git.downloads import Download
from gitops_reconciler.git.failures import failure
from gitops_reconciler.git.file_locks import hold_file
from gitops_reconciler.git.mirror_folders import Found, MirrorFolder
from gitops_reconciler.git.objects import Objects, open_objects
from gitops_reconciler.git.refs import check_ref, describe, is_sha, keeper_ref
from gitops_reconciler.git.repositories import check_owner, read_ref, remove_stale_locks
from gitops_reconciler.git.urls import Remote, check_url, parse_remote, repository_key
from gitops_reconciler.processes import Runner
from gitops_reconciler.redaction import Redactor

_log = logging.getLogger("gitops_reconciler")
_LARGEST_READ_BYTES = 16 << 20
_LEAST_FREE_BYTES = 64 << 20

Latest = Callable[[str], tuple[str, int]]
"""Returns (epoch, ask counter) of a repository key as it is now."""


@dataclass(frozen=True, slots=True)
class _Mirror:
    """One repository: what was asked for, where it comes from and where it lies."""

    repository: Repository
    remote: Remote
    folder: MirrorFolder


class GitMirrors:
    """Implements `Mirrors`. Safe across threads and processes."""

    def __init__(
        self,
        root: Path,
        *,
        credentials: Credentials,
        allow_local: Path | None,
        runner: Runner,
        timeout_seconds: float = 120.0,
        redactor: Redactor | None = None,
        latest: Latest | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Keep mirrors below `root`; of `environ` only PATH, TMPDIR, proxies and certificates reach git.

        With `latest` the counter is read once more right before a fetch, so that this one fetch serves everybody who
        asked until then, not only its own caller.
        """
        self._root = root
        self._credentials = credentials
        self._allow_local = allow_local
        self._timeout_seconds = timeout_seconds
        self._redactor = redactor or Redactor()
        self._latest = latest
        self._git = Git(runner=runner, folder=root, environ=environ or {})

    # --- fetching -------------------------------------------------------------------------------------------------

    def fetch(self, repository: Repository, *, asked: tuple[str, int] | None, deadline: Deadline) -> Revision:
        """Return the tip of the ref, fetched now or known from a fetch that began after the ask; see the contract.

        A full SHA never changes: once it was found on a branch or tag, the network is not asked again.
        """
        mirror = self._checked(repository)
        if found := self._known(mirror, asked):
            return found.revision(fetched=False)
        with self._locked(mirror, deadline) as lock_fd:
            if found := self._known(mirror, asked):
                return found.revision(fetched=False)
            covers = self._newest(mirror, asked)
            found = self._look(mirror, lock_fd, deadline)
            before = mirror.folder.found(repository.ref)
            if covers is None and before is not None:
                covers = (before.epoch, before.asked)
            found = found.after(covers)
            if found != before:
                mirror.folder.remember(repository.ref, found)
        return found.revision(fetched=True)

    def _known(self, mirror: _Mirror, asked: tuple[str, int] | None) -> Found | None:
        found = mirror.folder.found(mirror.repository.ref)
        if found is None or mirror.folder.is_damaged:
            return None
        return found if is_sha(mirror.repository.ref) or found.covers(asked) else None

    def _newest(self, mirror: _Mirror, asked: tuple[str, int] | None) -> tuple[str, int] | None:
        """Return the newest ask that the fetch to come will cover: it must be read before the fetch begins."""
        if self._latest is None:
            return asked
        try:
            now = self._latest(repository_key(mirror.repository.url))
        except StoreUnavailableError:
            return asked
        return now if asked is None or asked[0] != now[0] else max(asked, now)

    def _look(self, mirror: _Mirror, lock_fd: int, deadline: Deadline) -> Found:
        """Look at the remote, and download what is new there."""
        self._check_disk()
        with self._access(mirror.remote) as access:
            download = Download(
                git=self._git,
                folder=mirror.folder,
                remote=mirror.remote,
                access=access,
                redactor=self._redactor,
                lock_fd=lock_fd,
                deadline=deadline,
                timeout_seconds=self._timeout_seconds,
            )
            return download.bring(mirror.repository.ref)

    def _access(self, remote: Remote) -> AbstractContextManager[Access]:
        login = None if remote.is_local else self._credentials.login_for(remote)
        return lent_access(remote, login, MirrorFolder.of(self._root, remote).login, self._redactor)

    def _check_disk(self) -> None:
        free = shutil.disk_usage(self._root).free
        if free < _LEAST_FREE_BYTES:
            raise DiskFullError(
                f"only {free >> 20} MiB are free below '{self._root}': nothing is fetched before there is more"
            )

    # --- reading --------------------------------------------------------------------------------------------------

    def read_file(self, repository: Repository, revision: str, path: str) -> bytes | None:
        """Return a file of a fetched revision, or None; never follows a symlink."""
        return self.read_files(repository, revision, [path]).get(path)

    def read_files(self, repository: Repository, revision: str, paths: list[str]) -> dict[str, bytes]:
        """Return many files of a fetched revision in one go; what is not there is left out.

        Raises:
            SpecError: a file is larger than 16 MiB.

        """
        with self._reading(repository) as objects:
            tree = objects.known_commit(revision, repository.url).tree
            entries = {path: entry for path in paths if (entry := objects.at(tree, path)) and entry.is_file}
            return {path: objects.blob(entry.oid, _LARGEST_READ_BYTES, path) for path, entry in entries.items()}

    def authorship(self, repository: Repository, revision: str) -> Authorship | None:
        """Return who made a fetched revision, and when, as the commit itself says."""
        with self._reading(repository) as objects:
            return objects.authorship(revision)

    def list_files(self, repository: Repository, revision: str, folder: str) -> dict[str, str]:
        """Return the regular files below a folder of a fetched revision: path from the root -> blob id."""
        clean = "/".join(part for part in folder.split("/") if part not in {"", "."})
        with self._reading(repository) as objects:
            top = objects.at(objects.known_commit(revision, repository.url).tree, clean)
            if top is None or not top.is_tree:
                return {}
            return {path: entry.oid for path, entry in objects.walk(top.oid, clean) if entry.is_file}

    def same_tree(self, repository: Repository, one: str, other: str, folder: str) -> bool:
        """Whether a folder (or file) is equal in two revisions; False when either is unknown here."""
        if not self._checked(repository).folder.exists:
            return False
        with self._reading(repository) as objects:
            first, second = objects.commit(one), objects.commit(other)
            if first is None or second is None:
                return False
            return objects.at(first.tree, folder) == objects.at(second.tree, folder)

    @contextmanager
    def _reading(self, repository: Repository) -> Iterator[Objects]:
        mirror = self._fetched(repository)
        try:
            with open_objects(self._git, mirror.folder.git_dir) as objects:
                yield objects
        except RepositoryCorruptError as error:
            mirror.folder.mark_damaged(str(error))
            raise

    # --- checking out ---------------------------------------------------------------------------------------------

    def checkout(
        self,
        repository: Repository,
        revision: str,
        tree: Path,
        *,
        keep: str,
        deadline: Deadline,
        applied: str | None = None,
        within: str = "",
    ) -> SyncResult:
        """Make `tree` equal to the revision; see the contract.

        What stands in the way of it is mended, each once: a revision that is not on this host is fetched, a damaged
        index thrown away, a damaged mirror made anew.
        """
        if not is_sha(revision):
            raise SpecError(f"'{describe(revision)}' is no full SHA: only such a one is checked out")
        mirror = self._checked(repository)
        checkout = Checkout(
            git=self._git,
            redactor=self._redactor,
            tree=tree,
            mirror=mirror.folder.git_dir,
            address=mirror.remote.address,
        )
        missing = partial(self.fetch, replace(repository, ref=revision), asked=None, deadline=deadline)
        remedies: dict[type[Exception], list[Callable[[], object]]] = {
            RefMissingError: [missing],
            RepositoryCorruptError: [checkout.forget_index, partial(self._heal, mirror, deadline)],
        }
        if not mirror.folder.exists:
            remedies[RefMissingError].pop()()
        while True:
            try:
                done = checkout.sync(revision, within=within, deadline=deadline)
            except (RefMissingError, RepositoryCorruptError) as error:
                if not remedies[type(error)]:
                    raise
                _log.warning("checkout is mended", extra={"path": str(tree), "error": str(error)})
                remedies[type(error)].pop(0)()
            else:
                self._keep(mirror, {"applied": revision, "last": applied}, keep, deadline)
                return done if done.subject else replace(done, subject=self._subject(mirror, revision))

    def _subject(self, mirror: _Mirror, revision: str) -> str:
        """Return what the last fetch said of a revision: a checkout that was there already reads no objects."""
        found = mirror.folder.found(mirror.repository.ref)
        return found.subject if found is not None and found.sha == revision else ""

    def _keep(self, mirror: _Mirror, shas: Mapping[str, str | None], keep: str, deadline: Deadline) -> None:
        """Have refs hold on to commits, so that they survive a rewritten history and clean-ups (G58)."""
        git_dir = mirror.folder.git_dir
        wanted = {keeper_ref(group, keep): sha for group, sha in shas.items() if sha is not None}
        missing = {ref: sha for ref, sha in wanted.items() if read_ref(git_dir, ref) != sha}
        if not missing:
            return
        with self._reading(mirror.repository) as objects:
            objects.known_commit(shas["applied"] or "", mirror.remote.address)
            missing = {ref: sha for ref, sha in missing.items() if objects.commit(sha) is not None}
        with self._locked(mirror, deadline) as lock_fd:
            remove_stale_locks(git_dir)
            for ref, sha in missing.items():
                arguments = ("update-ref", ref, sha)
                done = self._git.run(*arguments, git_dir=git_dir, deadline=deadline, lock_fd=lock_fd)
                if done.returncode:
                    raise failure(
                        done, doing=f"keeping revision '{sha}' of '{mirror.remote.address}'", redactor=self._redactor
                    )

    def _heal(self, mirror: _Mirror, deadline: Deadline) -> None:
        """Make a damaged mirror anew, unless somebody just did."""
        born = mirror.folder.born
        with self._locked(mirror, deadline) as lock_fd:
            if mirror.folder.born == born:
                mirror.folder.mark_damaged("a checkout met damage")
                mirror.folder.remember(mirror.repository.ref, self._look(mirror, lock_fd, deadline))

    # --- what all of them need ------------------------------------------------------------------------------------

    def _checked(self, repository: Repository) -> _Mirror:
        """Return the mirror of a repository that may be used; a wrong URL or ref is a SpecError."""
        check_ref(repository.ref)
        allow_http = repository.url.strip().lower().startswith("http:") and self._credentials.permits_http(
            parse_remote(repository.url)
        )
        remote = check_url(repository.url, self._allow_local, allow_http=allow_http)
        return _Mirror(repository, remote, MirrorFolder.of(self._root, remote))

    def _fetched(self, repository: Repository) -> _Mirror:
        mirror = self._checked(repository)
        if not mirror.folder.exists:
            raise RefMissingError(f"'{mirror.remote.address}' has not been fetched on this host yet")
        return mirror

    @contextmanager
    def _locked(self, mirror: _Mirror, deadline: Deadline) -> Iterator[int]:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_owner(self._root)
        # Longer than one fetch may take: who waits behind a stalled one must get its own turn (G83).
        limit = deadline.sooner(2 * self._timeout_seconds)
        with hold_file(mirror.folder.lock, of=f"'{mirror.remote.address}'", deadline=limit) as lock_fd:
            if mirror.folder.exists:
                check_owner(mirror.folder.git_dir)
            yield lock_fd
