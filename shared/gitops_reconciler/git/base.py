"""The contract of git: one mirror per repository and host, one persistent checkout per target, pinned to a SHA."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gitops_reconciler.clock import Deadline
from gitops_reconciler.git.authorship import Authorship


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Where something is declared: a URL without credentials, and a full ref (`refs/heads/…`, `refs/tags/…`) or SHA."""

    url: str
    ref: str = "refs/heads/main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What a ref pointed to when it was fetched last."""

    sha: str
    """Full 40 or 64 hex digits."""
    subject: str = ""
    """First line of the commit message, printable, at most 200 characters."""
    fetched: bool = True
    """False: an earlier fetch already covered the ask, so the network was not touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """What a sync did to a checkout."""

    tree: Path
    old: str | None
    """Revision of the checkout before; None when it was made now."""
    new: str
    subject: str = ""

    @property
    def changed(self) -> bool:
        """Whether the checkout moved to another revision."""
        return self.old != self.new


class Mirrors(Protocol):
    """Bare mirrors below one folder. Safe across threads and processes: one short file lock per mirror."""

    def fetch(self, repository: Repository, *, asked: tuple[str, int] | None, deadline: Deadline) -> Revision:
        """Return the tip of the ref, fetched now, or known from a fetch that began after the ask.

        `asked` is (epoch of the store, the repository's ask counter as the claim saw it), or None to look always. A
        full SHA is looked for once: it must be on a branch or tag, and can't change after that.
        Raises a subclass of `GitError` (auth, not found, network, ref missing, corrupt, disk), or `SpecError` for a
        URL or ref that may not be used.
        """
        ...

    def read_file(self, repository: Repository, revision: str, path: str) -> bytes | None:
        """Return a file of a fetched revision, or None; never follows a symlink."""
        ...

    def read_files(self, repository: Repository, revision: str, paths: list[str]) -> dict[str, bytes]:
        """Return many files of a fetched revision in one go: path -> content; what is not there is left out."""
        ...

    def authorship(self, repository: Repository, revision: str) -> Authorship | None:
        """Return who made a fetched revision, and when, as the commit itself says; None where it does not."""
        ...

    def list_files(self, repository: Repository, revision: str, folder: str) -> dict[str, str]:
        """Return the regular files below a folder of a fetched revision: path from the repository's root -> blob id."""
        ...

    def same_tree(self, repository: Repository, one: str, other: str, folder: str) -> bool:
        """Whether a folder is equal in two revisions; False when either is unknown here."""
        ...

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
        """Make `tree` equal to the revision: tracked files are reset, untracked ones left alone; idempotent.

        A revision that is not on this host is fetched. `keep` names the keeper ref (`refs/gitops/applied/<keep>`) that
        holds on to it; with `applied`, the revision that was applied last, `refs/gitops/last/<keep>` holds on to that
        one too, so that a tear-down still has it when this revision never gets applied.
        Raises `CheckoutBlockedError` when an untracked path lies in the way, and `SpecError` when a symlink below
        `within` (empty: anywhere) leaves the tree; both change nothing.
        """
        ...
