"""One look at a remote, and the download of what is new there, into a mirror whose lock is held."""

from __future__ import annotations

import difflib
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import (
    DeadlineExceededError,
    GitopsError,
    RefMissingError,
    RepositoryCorruptError,
    RepositoryUnreachableError,
)
from gitops_reconciler.git.command import OFFLINE, Access, Git
from gitops_reconciler.git.failures import failure
from gitops_reconciler.git.mirror_folders import Found, MirrorFolder
from gitops_reconciler.git.objects import Commit, open_objects
from gitops_reconciler.git.refs import (
    BRANCHES,
    KEEPERS,
    TAGS,
    describe,
    is_sha,
    keeper_ref,
    refspecs,
    tracking_ref,
)
from gitops_reconciler.git.repositories import lay_out, read_ref, remove_leftovers
from gitops_reconciler.git.urls import Remote
from gitops_reconciler.processes import Finished
from gitops_reconciler.redaction import Redactor

_log = logging.getLogger("gitops_reconciler")
_NOTHING_MATCHED = 2  # exit code of `ls-remote --exit-code`
_FETCH = (
    "fetch", "--quiet", "--prune", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-gc",
)  # fmt: skip
_SHOWN_BRANCHES = 5
_MOST_PACKS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """What a look and a download need. Every command inherits the mirror's lock."""

    git: Git
    folder: MirrorFolder
    remote: Remote
    access: Access
    redactor: Redactor
    lock_fd: int
    deadline: Deadline
    timeout_seconds: float

    def bring(self, ref: str) -> Found:
        """Return what the remote has at a ref, with its objects in the mirror.

        Raises:
            GitError: the subclass says what kind of failure.

        """
        if is_sha(ref):
            return self._bring_commit(ref)
        tip = self._tip(ref)
        known = self.folder.found(ref)
        if self._is_sound and known is not None and known.tip == tip:
            return known
        self._download(ref, digits=len(tip))
        return self._resolved(self.folder.git_dir, ref)

    @property
    def _is_sound(self) -> bool:
        return self.folder.exists and not self.folder.is_damaged

    def _tip(self, ref: str) -> str:
        """Ask the remote; a full ref, compared exactly: `ls-remote` itself matches tails (G46)."""
        done = self._ls_remote("--exit-code", "--quiet", "--end-of-options", self.remote.address, ref)
        if done.returncode == _NOTHING_MATCHED:
            self._explain_missing(ref)
        if done.returncode:
            raise failure(done, doing=f"look at '{self.remote.address}'", redactor=self.redactor)
        tips = [oid for oid, _, name in (line.partition("\t") for line in done.data.splitlines()) if name == ref]
        if len(tips) != 1 or not is_sha(tips[0]):
            self._explain_missing(ref)
        return tips[0]

    def _ls_remote(self, *arguments: str) -> Finished:
        # In no repository at all: a damaged mirror must not keep us from looking.
        return self._run("ls-remote", *arguments, git_dir=self.folder.root / "no-repository")

    def _explain_missing(self, ref: str) -> Never:
        """Say what there is instead: nothing at all, or another default branch (G48, G50)."""
        what = f"{describe(ref)} of '{self.remote.address}'"
        done = self._ls_remote("--symref", "--quiet", "--end-of-options", self.remote.address)
        if done.returncode:
            raise failure(done, doing=f"look at '{self.remote.address}'", redactor=self.redactor)
        lines = [line.partition("\t")[::2] for line in done.data.splitlines()]
        if not lines:
            raise RefMissingError(f"{what} is not there: the repository is empty; it is tried again")
        heads = [name.removeprefix(BRANCHES) for _, name in lines if name.startswith(BRANCHES)]
        default = next((text.removeprefix(f"ref: {BRANCHES}") for text, name in lines if name == "HEAD"), "")
        near = difflib.get_close_matches(ref.rpartition("/")[2], heads, n=_SHOWN_BRANCHES)
        shown = near or [*([default] if default in heads else []), *(head for head in heads if head != default)]
        offer = ", ".join(f"'{name}'" for name in shown[:_SHOWN_BRANCHES])
        default_words = f"its default branch is '{default}', " if default in heads else ""
        raise RefMissingError(
            f"{what} is not there ({default_words}it has {len(heads)} branches"
            f"{f', such as {offer}' if offer else ''}); nothing is pruned because of this"
        )

    def _download(self, ref: str, *, digits: int) -> None:
        """Download a ref; a mirror that turns out to be damaged is replaced, once."""
        if self._is_sound:
            try:
                remove_leftovers(self.folder.git_dir)
                self._fetch(self.folder.git_dir, ref)
                self._merge_packs()
                self._prove(self.folder.git_dir, ref)
            except RepositoryCorruptError as error:
                _log.warning("git mirror is damaged", extra={"path": str(self.folder.git_dir), "error": str(error)})
            else:
                return
        self._clone(ref, digits=digits)

    def _clone(self, ref: str, *, digits: int) -> None:
        """Clone beside, then swap: half a clone, or one that fails, never takes a mirror's place (G77, G78)."""
        draft = self.folder.draft()
        try:
            lay_out(draft, digits=digits, is_bare=True)
            self._fetch(draft, ref)
            self._prove(draft, ref)
            before = self.folder.put_in_place(draft)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        if before is not None:
            self._carry_keepers(before)

    def _prove(self, git_dir: Path, ref: str) -> None:
        """Read what was downloaded, before anything relies on it."""
        if not is_sha(ref):
            self._resolved(git_dir, ref)

    def _carry_keepers(self, before: Path) -> None:
        """Bring over what targets hold on to, as far as it can still be read: a tear-down may need it."""
        keepers = f"+{KEEPERS}*:{KEEPERS}*"
        try:
            done = self._run(*_FETCH, "--end-of-options", str(before), keepers, access=Access(protocol="file"))
        except GitopsError as error:
            _log.warning("kept revisions could not be carried over", extra={"error": str(error)})
            return
        if done.returncode:
            why = failure(done, doing="carrying over", redactor=self.redactor)
            _log.warning("kept revisions could not be carried over", extra={"error": str(why)})

    def _fetch(self, git_dir: Path, ref: str) -> None:
        doing = f"fetch of {describe(ref)} from '{self.remote.address}'"
        arguments = (*_FETCH, "--end-of-options", self.remote.address, *refspecs(ref))
        done = self._run(*arguments, git_dir=git_dir)
        if done.returncode and self._drop_conflicting(git_dir, ref):
            done = self._run(*arguments, git_dir=git_dir)
        if done.returncode:
            raise failure(done, doing=doing, redactor=self.redactor)

    def _merge_packs(self) -> None:
        """Keep the number of packs small: each fetch brings one, and each makes every read slower.

        A geometric repack loses nothing, not even what no ref names, and is cheap since it leaves big packs alone.
        """
        packs = self.folder.git_dir / "objects" / "pack"
        if sum(1 for _ in packs.glob("*.pack")) <= _MOST_PACKS:
            return
        done = self._run("repack", "--geometric=2", "-d", "--quiet", access=OFFLINE)
        if done.returncode:
            why = failure(done, doing="repack", redactor=self.redactor)
            _log.warning("packs were not merged", extra={"path": str(packs), "error": str(why)})

    def _drop_conflicting(self, git_dir: Path, ref: str) -> bool:
        """Drop refs in the way of a new one: `feat` of `feat/x`, which the remote can't have any more (G43)."""
        wanted = tracking_ref(ref)
        space = TAGS if ref.startswith(TAGS) else "refs/remotes/origin/"
        listed = self._run("for-each-ref", "--format=%(refname)", space, git_dir=git_dir, access=OFFLINE)
        names = listed.data.splitlines()
        conflicting = [name for name in names if wanted.startswith(f"{name}/") or name.startswith(f"{wanted}/")]
        for name in conflicting:
            self._run("update-ref", "-d", name, git_dir=git_dir, access=OFFLINE)
        return bool(conflicting)

    def _resolved(self, git_dir: Path, ref: str) -> Found:
        tip = read_ref(git_dir, tracking_ref(ref))
        if tip is None:
            raise RepositoryCorruptError(
                f"'{tracking_ref(ref)}' is not in '{git_dir}' after its fetch; it is made anew"
            )
        commit = self._commit(git_dir, tip)
        if commit is None:
            raise RefMissingError(f"{describe(ref)} of '{self.remote.address}' names no commit")
        return Found(tip=tip, sha=commit.sha, subject=commit.subject)

    def _commit(self, git_dir: Path, oid: str) -> Commit | None:
        with open_objects(self.git, git_dir) as objects:
            commit = objects.commit(oid)
            if commit is not None:
                objects.tree(commit.tree)  # a first proof that more than the commit has arrived
            return commit

    # --- a full SHA -----------------------------------------------------------------------------------------------

    def _bring_commit(self, sha: str) -> Found:
        found = self._contained(sha) if self._is_sound else None
        if found is None:
            self._download(sha, digits=len(sha))
            found = self._contained(sha)
        if found is None:
            raise RefMissingError(f"{describe(sha)} is on no branch or tag of '{self.remote.address}'")
        return found

    def _contained(self, sha: str) -> Found | None:
        """Return the commit if it is on a branch or tag; a forge also hands out what only a fork has (G54)."""
        git_dir = self.folder.git_dir
        try:
            commit = self._commit(git_dir, sha)
        except RepositoryCorruptError:
            return None  # the download that follows finds out more
        if commit is None or commit.sha != sha:
            return None
        arguments = ("for-each-ref", "--count=1", f"--contains={sha}", "refs/remotes/origin", "refs/tags")
        done = self._run(*arguments, git_dir=git_dir, access=OFFLINE)
        if done.returncode:
            raise failure(done, doing=f"search for {describe(sha)}", redactor=self.redactor)
        if not done.data.strip():
            return None
        self._run("update-ref", keeper_ref("pinned", sha), sha, git_dir=git_dir, access=OFFLINE)
        return Found(tip=sha, sha=sha, subject=commit.subject)

    def _run(self, *arguments: str, git_dir: Path | None = None, access: Access | None = None) -> Finished:
        try:
            return self.git.run(
                *arguments,
                git_dir=git_dir or self.folder.git_dir,
                access=self.access if access is None else access,
                deadline=self.deadline.sooner(self.timeout_seconds),
                lock_fd=self.lock_fd,
            )
        except DeadlineExceededError as error:
            if self.deadline.is_over:
                raise
            raise RepositoryUnreachableError(
                f"'{self.remote.address}' did not answer within {self.timeout_seconds:g} s; it is tried again"
            ) from error
