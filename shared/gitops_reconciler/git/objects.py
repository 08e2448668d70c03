"""Reads commits, trees and files of a repository by one `git cat-file` that answers over pipes.

Not GitPython: docs/decisions/0002-git-runs-as-a-process.md says why.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from gitops_reconciler.errors import RefMissingError, RepositoryCorruptError, SpecError
from gitops_reconciler.git.authorship import Authorship, parse_authorship
from gitops_reconciler.git.command import Git, Pipes
from gitops_reconciler.git.refs import is_sha
from gitops_reconciler.redaction import printable

TREE: Final = 0o040000
LINK: Final = 0o120000
SUBMODULE: Final = 0o160000
_LARGEST_NODE_BYTES = 64 << 20  # a commit or tree; a tree of this size has about a million entries
_MOST_ENTRIES = 500_000  # twelve objects can make 10^10 paths (G29)
_DEEPEST = 128
_LONGEST_SUBJECT = 200
_MOST_TAGS = 10  # a tag may name a tag


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a tree."""

    mode: int
    oid: str

    @property
    def is_tree(self) -> bool:
        return self.mode == TREE

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, executable or not."""
        return stat.S_ISREG(self.mode)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: its tree, and the first line of its message."""

    sha: str
    tree: str
    subject: str


@contextmanager
def open_objects(git: Git, git_dir: Path) -> Iterator[Objects]:
    """Read the objects of a repository while the block runs: one process, however many are read."""
    with git.talk("cat-file", "--batch", git_dir=git_dir) as pipes:
        yield Objects(pipes, git_dir)


class Objects:
    """The objects of one repository. What is missing is None for a commit, and damage for all else."""

    def __init__(self, pipes: Pipes, git_dir: Path) -> None:
        self._pipes = pipes
        self._git_dir = git_dir
        self._trees: dict[str, dict[str, Entry]] = {}

    def commit(self, oid: str) -> Commit | None:
        """Return the commit that an object is, or that a tag names; None when it is not here or no commit."""
        for _ in range(_MOST_TAGS):
            found = self._read(oid, _LARGEST_NODE_BYTES) if is_sha(oid) else None
            if found is None:
                return None
            kind, content = found
            if kind == "commit":
                return _parse_commit(oid, content)
            if kind != "tag":
                return None
            oid = content.partition(b"\n")[0].removeprefix(b"object ").decode("ascii", "replace")
        return None

    def authorship(self, oid: str) -> Authorship | None:
        """Return who made a commit; None when it is not here, or does not say."""
        found = self._read(oid, _LARGEST_NODE_BYTES) if is_sha(oid) else None
        return parse_authorship(found[1]) if found is not None and found[0] == "commit" else None

    def known_commit(self, sha: str, of: str) -> Commit:
        """Return a commit that must be here.

        Raises:
            RefMissingError: it is not; `of` says which repository.

        """
        commit = self.commit(sha)
        if commit is None:
            raise RefMissingError(
                f"revision '{sha}' of '{of}' is not on this host; a fetch brings it if it still exists"
            )
        return commit

    def tree(self, oid: str) -> dict[str, Entry]:
        """Return the entries of a tree by name; bytes that are no UTF-8 become surrogates."""
        if oid not in self._trees:
            self._trees[oid] = _parse_tree(self._content(oid, "tree", _LARGEST_NODE_BYTES), len(oid) // 2)
        return self._trees[oid]

    def blob(self, oid: str, limit: int, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            SpecError: it is larger than the limit.

        """
        try:
            return self._content(oid, "blob", limit)
        except _TooLargeError as error:
            raise SpecError(f"'{name}' has {error.size} bytes, more than the {limit} that are read") from None

    def at(self, tree: str, path: str) -> Entry | None:
        """Return what lies at a path, without following symlinks; the empty path is the tree itself."""
        entry = Entry(TREE, tree)
        for part in path.split("/"):
            if part in {"", "."}:
                continue
            if not entry.is_tree:
                return None
            found = self.tree(entry.oid).get(part)
            if found is None:
                return None
            entry = found
        return entry

    def walk(self, tree: str, folder: str = "") -> Iterator[tuple[str, Entry]]:
        """Yield path and entry of all that is not a folder, in git's order.

        Raises:
            SpecError: more paths, or deeper ones, than any honest repository has.

        """
        count = 0
        pending = [(f"{folder}/" if folder else "", iter(self.tree(tree).items()))]
        while pending:
            prefix, entries = pending[-1]
            name, entry = next(entries, ("", None))
            if entry is None:
                pending.pop()
                continue
            count += 1
            if count > _MOST_ENTRIES or len(pending) > _DEEPEST:
                raise SpecError(f"the tree has more than {_MOST_ENTRIES} paths or is deeper than {_DEEPEST}")
            if entry.is_tree:
                pending.append((f"{prefix}{name}/", iter(self.tree(entry.oid).items())))
            else:
                yield prefix + name, entry

    def added(self, old: str | None, new: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        """Yield path and entry of what is no folder in the new tree and was not there, or was a folder, in the old."""
        before = {} if old is None else self.tree(old)
        for name, entry in self.tree(new).items():
            earlier = before.get(name)
            if entry.is_tree:
                folder = earlier.oid if earlier is not None and earlier.is_tree else None
                if folder is None:
                    yield from self.walk(entry.oid, prefix + name)
                elif folder != entry.oid:
                    yield from self.added(folder, entry.oid, f"{prefix}{name}/")
            elif earlier is None or earlier.is_tree:
                yield prefix + name, entry

    def _content(self, oid: str, kind: str, limit: int) -> bytes:
        found = self._read(oid, limit)
        if found is None or found[0] != kind:
            self._fail(f"{kind} '{oid}' is missing")
        return found[1]

    def _read(self, oid: str, limit: int) -> tuple[str, bytes] | None:
        answers = self._pipes.answers
        try:
            self._pipes.questions.write(f"{oid}\n".encode("ascii"))
            self._pipes.questions.flush()
        except BrokenPipeError:
            self._fail("git ended")
        header = answers.readline().split()
        if header[1:] == [b"missing"]:
            return None
        if len(header) != 3:  # noqa: PLR2004  # object id, kind, size
            self._fail("git ended")
        kind, size = header[1].decode("ascii"), int(header[2])
        if size > limit:
            self._skip(size + 1)
            raise _TooLargeError(size)
        content = answers.read(size + 1)
        if len(content) != size + 1:
            self._fail(f"{kind} '{oid}' is cut off")
        return kind, content[:-1]

    def _skip(self, count: int) -> None:
        while count > 0:
            data = self._pipes.answers.read(min(count, 1 << 20))
            if not data:
                self._fail("git ended")
            count -= len(data)

    def _fail(self, why: str) -> NoReturn:
        self._pipes.said.seek(0)
        said = printable(self._pipes.said.read(2000).decode("utf-8", "replace")).strip().replace("\n", "; ")
        raise RepositoryCorruptError(f"the local copy '{self._git_dir}' is damaged: {said or why}; it is made anew")


class _TooLargeError(Exception):
    """An object is larger than its reader wants."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def _parse_commit(sha: str, content: bytes) -> Commit:
    head, _, message = content.partition(b"\n\n")
    fields = dict(line.partition(b" ")[::2] for line in reversed(head.split(b"\n")))
    encoding = fields.get(b"encoding", b"utf-8").decode("ascii", "replace")
    first = message.lstrip(b"\n").partition(b"\n")[0]
    try:
        subject = first.decode(encoding, "replace")
    except LookupError:
        subject = first.decode("utf-8", "replace")
    clean = "".join(character for character in subject if character.isprintable()).strip()
    return Commit(sha, fields.get(b"tree", b"").decode("ascii", "replace"), clean[:_LONGEST_SUBJECT])


def _parse_tree(content: bytes, oid_length: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    position = 0
    while position < len(content):
        space = content.index(b" ", position)
        zero = content.index(b"\0", space)
        end = zero + 1 + oid_length
        entries[os.fsdecode(content[space + 1 : zero])] = Entry(
            int(content[position:space], 8), content[zero + 1 : end].hex()
        )
        position = end
    return entries
