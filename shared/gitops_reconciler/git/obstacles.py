"""Untracked paths in the way of a checkout: git would overwrite or delete them without a word (G64, G65)."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gitops_reconciler.git.objects import LINK, SUBMODULE, Entry

_READ_SIZE = 1 << 20
_SHA1_DIGITS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A working tree before a checkout."""

    tree: Path
    is_tracked: Callable[[str], bool]
    """Whether a path is a file, symlink or submodule of the revision that lies there now."""
    is_ours: Callable[[str], bool] = lambda _: False
    """Whether an untracked file comes from a checkout of ours that was cut off."""

    def obstacles(self, coming: Iterable[tuple[str, Entry]]) -> list[str]:
        """Return the untracked paths that lie where files are to come; what is equal already is none."""
        found: dict[str, None] = {}
        checked: dict[str, bool] = {}
        for path, entry in coming:
            blocked = self._blocked_folder(path, checked)
            if blocked is not None:
                found[blocked] = None
            else:
                found.update(dict.fromkeys(self._at(path, entry)))
        return list(found)

    def _blocked_folder(self, path: str, checked: dict[str, bool]) -> str | None:
        """Return a folder of the path that is an untracked file or symlink."""
        parts = path.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            folder = "/".join(parts[:count])
            if folder not in checked:
                checked[folder] = self._is_untracked_file(folder)
            if checked[folder]:
                return folder
        return None

    def _is_untracked_file(self, path: str) -> bool:
        status = self._status(path)
        return status is not None and not stat.S_ISDIR(status.st_mode) and not self.is_tracked(path)

    def _at(self, path: str, entry: Entry) -> Iterator[str]:
        status = self._status(path)
        if status is None:
            return
        if stat.S_ISDIR(status.st_mode):
            if entry.mode != SUBMODULE:
                yield from self._untracked_below(path)
        elif not (self.is_tracked(path) or self.is_ours(path) or is_same(self.tree / path, entry)):
            yield path

    def _untracked_below(self, folder: str) -> Iterator[str]:
        """Yield what would be lost with a folder: one path is enough for a person to see."""
        for place, _, names in os.walk(self.tree / folder):
            for name in names:
                path = os.path.relpath(os.path.join(place, name), self.tree)  # noqa: PTH118  # a walk of many names
                if not self.is_tracked(path):
                    yield path
                    return

    def _status(self, path: str) -> os.stat_result | None:
        try:
            return (self.tree / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None


def is_same(path: Path, entry: Entry) -> bool:
    """Whether a file or symlink holds exactly the bytes of a blob."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
            return entry.mode == LINK and _oid(len(content), [content], entry) == entry.oid
        if not stat.S_ISREG(status.st_mode) or not entry.is_file:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return _oid(status.st_size, iter(lambda: file.read(_READ_SIZE), b""), entry) == entry.oid
    except OSError:
        return False


def _oid(size: int, parts: Iterable[bytes], like: Entry) -> str:
    name = "sha1" if len(like.oid) == _SHA1_DIGITS else "sha256"
    digest = hashlib.new(name, f"blob {size}\0".encode(), usedforsecurity=False)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
