"""A working tree and its repository: what differs, what lies in the way, and how git is run on them.

Shared by the checkouts that we own and by clones that a person owns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import CheckoutBlockedError, GitError
from gitops_reconciler.git.command import Git
from gitops_reconciler.git.failures import failure
from gitops_reconciler.git.links import refuse_escaping_links
from gitops_reconciler.git.objects import Commit, Entry, Objects
from gitops_reconciler.git.obstacles import Ground, is_same
from gitops_reconciler.processes import Finished
from gitops_reconciler.redaction import Redactor

_SHOWN = 10
_STATUS = ("status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=all")
_REFUSED_PATH = re.compile(r"unable to (?:unlink old|unlink|create file|create symlink|write file) '?(?P<path>[^':;]+)")


def _nothing(_path: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTree:
    """A folder with files of a revision. Every git that runs on it inherits its lock."""

    git: Git
    tree: Path
    git_dir: Path
    address: str
    """Where its revisions come from, for messages: without credentials."""
    redactor: Redactor
    lock_fd: int

    def run(self, *arguments: str, doing: str, deadline: Deadline) -> Finished:
        """Run git on the tree.

        Raises:
            GitError: it failed; the subclass says how.

        """
        done = self.git.run(
            *arguments, git_dir=self.git_dir, work_tree=self.tree, deadline=deadline, lock_fd=self.lock_fd
        )
        if done.returncode:
            error = failure(done, doing=f"{doing} in '{self.tree}'", redactor=self.redactor)
            raise type(error)(f"{error}{self._owner_note(done.stderr)}")
        return done

    def _owner_note(self, stderr: str) -> str:
        """Say whose a file is that can't be replaced: most often a container's user (G68)."""
        match = _REFUSED_PATH.search(stderr)
        for path in () if match is None else (self.tree / match["path"], (self.tree / match["path"]).parent):
            try:
                return f"; '{path}' belongs to user {path.lstat().st_uid}"
            except OSError:
                continue
        return ""

    def changed_paths(self, deadline: Deadline) -> list[str] | None:
        """Return the tracked paths that differ from HEAD; None when there are too many to list."""
        done = self.run(*_STATUS, doing="status", deadline=deadline)
        return None if done.is_cut else [line[3:] for line in done.data.split("\0") if line]

    def really_changed(self, objects: Objects, commit: Commit, changed: list[str]) -> list[str]:
        """Return those of the changed paths whose bytes differ from the revision's.

        A file that was committed with CRLF before `.gitattributes` said `eol=lf` counts as changed for ever (G35).
        """

        def differs(path: str) -> bool:
            entry = objects.at(commit.tree, path)
            return entry is None or not is_same(self.tree / path, entry)

        return [path for path in changed if differs(path)]

    def refuse_what_is_unsafe(
        self,
        objects: Objects,
        new: Commit,
        *,
        old: Commit | None,
        changed: list[str] | None,
        within: str,
        deadline: Deadline,
        is_ours: Callable[[str], bool] = _nothing,
    ) -> None:
        """Check a revision before the tree moves to it.

        `old` is the revision that lies there, None when it is none or its commit is gone; `changed` are the tracked
        paths that differ from it, None when they are not known; `is_ours` tells untracked files that may be replaced.

        Raises:
            SpecError: a symlink leaves the tree.
            CheckoutBlockedError: untracked paths lie in the way.

        """
        refuse_escaping_links(objects, new.tree, within=within, what=f"revision {new.sha[:12]} of '{self.address}'")
        ground = Ground(tree=self.tree, is_tracked=self._tracked(objects, old, deadline), is_ours=is_ours)
        obstacles = ground.obstacles(_coming(objects, old, new, changed))
        if obstacles:
            listed = ", ".join(f"'{path}'" for path in obstacles[:_SHOWN])
            more = f" and {len(obstacles) - _SHOWN} more" if len(obstacles) > _SHOWN else ""
            raise CheckoutBlockedError(
                f"untracked paths in '{self.tree}' lie where revision {new.sha[:12]} has files: "
                f"{printable_path(listed)}{more}; nothing was changed: move or remove them"
            )

    def _tracked(self, objects: Objects, old: Commit | None, deadline: Deadline) -> Callable[[str], bool]:
        if old is None:
            listed = self.run("ls-files", "-z", doing="list of files", deadline=deadline)
            return frozenset(listed.data.split("\0")).__contains__
        tree = old.tree

        def is_in_tree(path: str) -> bool:
            entry = objects.at(tree, path)
            return entry is not None and not entry.is_tree

        return is_in_tree

    def verify(self, objects: Objects, commit: Commit, deadline: Deadline) -> None:
        """Check that the tracked files are those of the revision.

        Raises:
            GitError: they are not, right after a checkout that said it was done.

        """
        changed = self.changed_paths(deadline)
        left = ["very many"] if changed is None else self.really_changed(objects, commit, changed)
        if left:
            shown = printable_path(", ".join(f"'{path}'" for path in left[:_SHOWN]))
            raise GitError(f"files in '{self.tree}' differ from {commit.sha[:12]} right after its checkout: {shown}")


def printable_path(path: str) -> str:
    """Return a file name as it may stand in a message: bytes that are no UTF-8 as escapes."""
    return path.encode("utf-8", "backslashreplace").decode()


def _coming(
    objects: Objects, old: Commit | None, new: Commit, changed: list[str] | None
) -> Iterator[tuple[str, Entry]]:
    """Yield what a checkout writes where it might not be ours: new paths, and old ones that were changed."""
    if changed is None or old is None:
        yield from objects.walk(new.tree)
        return
    yield from objects.added(old.tree, new.tree)
    for path in changed:
        entry = objects.at(new.tree, path)
        if entry is not None and not entry.is_tree:
            yield path, entry
