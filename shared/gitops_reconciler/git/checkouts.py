"""The persistent checkout of a target: pinned to a revision, tracked files reset, everything else left alone.

A checkout is a small repository of its own that reads its objects from the mirror (`objects/info/alternates`). Not a
linked worktree: that registers itself in the mirror, where a folder that was removed, moved or restored by hand blocks
the next one (G72, G73), and where any git that a tool runs inside the tree could write. Not a bare `--work-tree` with
an index beside it: a tool that calls git inside the tree would then find another repository above it (G16).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import RepositoryCorruptError
from gitops_reconciler.git.base import SyncResult
from gitops_reconciler.git.command import Git
from gitops_reconciler.git.file_locks import hold_file
from gitops_reconciler.git.objects import Commit, Objects, open_objects
from gitops_reconciler.git.refs import is_sha
from gitops_reconciler.git.repositories import check_owner, head_of, lay_out, remove_stale_locks, replace_file
from gitops_reconciler.git.work_trees import WorkTree
from gitops_reconciler.redaction import Redactor

_LONGEST_WAIT_SECONDS = 60.0  # for a git that outlived its run; the target's lease keeps all others out


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """One target's tree. Its caller holds the target's lease."""

    git: Git
    redactor: Redactor
    tree: Path
    mirror: Path
    address: str

    @property
    def _git_dir(self) -> Path:
        return self.tree / ".git"

    @property
    def _moving(self) -> Path:
        """Names the revision that a checkout under way brings, so that one that was cut off can be taken up again."""
        return self._git_dir / "gitops-moving"

    def forget_index(self) -> None:
        """Throw a damaged index away; the next checkout reads all files anew."""
        (self._git_dir / "index").unlink(missing_ok=True)

    def sync(self, sha: str, *, within: str, deadline: Deadline) -> SyncResult:
        """Make the tree equal to the revision, whose objects are in the mirror.

        Symlinks are checked below the folder `within`; the empty one is the whole tree.

        Raises:
            CheckoutBlockedError: an untracked path lies in the way; nothing was changed.
            SpecError: a symlink leaves the tree; nothing was changed.
            RepositoryCorruptError: objects or index are damaged.

        """
        self._prepare(len(sha))
        limit = deadline.sooner(_LONGEST_WAIT_SECONDS)
        with hold_file(self._git_dir / "gitops-busy", of=f"'{self.tree}'", deadline=limit) as lock_fd:
            remove_stale_locks(self._git_dir)
            work_tree = WorkTree(
                git=self.git,
                tree=self.tree,
                git_dir=self._git_dir,
                address=self.address,
                redactor=self.redactor,
                lock_fd=lock_fd,
            )
            old = head_of(self._git_dir)
            if old == sha and not self._moving.exists() and work_tree.changed_paths(deadline) == []:
                return SyncResult(tree=self.tree, old=old, new=sha)
            with open_objects(self.git, self.mirror) as objects:
                return self._move(work_tree, objects, objects.known_commit(sha, self.address), within, deadline)

    def _prepare(self, digits: int) -> None:
        if self._git_dir.is_symlink() or self._git_dir.is_file():
            self._git_dir.unlink()  # no checkout of ours: a tool's, or a linked worktree's
        self._git_dir.mkdir(parents=True, exist_ok=True)
        check_owner(self._git_dir)
        lay_out(self._git_dir, digits=digits, is_bare=False, lends_from=self.mirror / "objects", url=self.address)

    def _move(self, work_tree: WorkTree, objects: Objects, new: Commit, within: str, deadline: Deadline) -> SyncResult:
        head = head_of(self._git_dir)
        done = SyncResult(tree=self.tree, old=head, new=new.sha, subject=new.subject)
        old = objects.commit(head) if head is not None else None
        # A HEAD whose commit is gone (its mirror was made anew) has no status.
        changed = work_tree.changed_paths(deadline) if old is not None else None
        if head == new.sha and changed is not None and not self._moving.exists():
            changed = work_tree.really_changed(objects, new, changed)
            if not changed:
                return done
        work_tree.refuse_what_is_unsafe(
            objects,
            new,
            old=old,
            changed=changed,
            within=within,
            deadline=deadline,
            is_ours=self._left_by_us(objects),
        )
        replace_file(self._moving, new.sha)
        arguments = ("checkout", "--quiet", "--force", "--detach", new.sha, "--")
        work_tree.run(*arguments, doing=f"checkout of {new.sha[:12]}", deadline=deadline)
        if head_of(self._git_dir) != new.sha:
            raise RepositoryCorruptError(f"'{self.tree}' is not at {new.sha} after its checkout; it is tried again")
        work_tree.verify(objects, new, deadline)
        self._moving.unlink()
        return done

    def _left_by_us(self, objects: Objects) -> Callable[[str], bool]:
        """Tell files of a checkout that was cut off from other untracked ones: they may be half written."""
        sha = ""
        with suppress(OSError):
            sha = self._moving.read_text(encoding="ascii", errors="replace").strip()
        commit = objects.commit(sha) if is_sha(sha) else None

        def is_part_of_it(path: str) -> bool:
            entry = None if commit is None else objects.at(commit.tree, path)
            return entry is not None and not entry.is_tree

        return is_part_of_it
