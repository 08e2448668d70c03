"""Which files of a folder are documents, and how they are read from disk: bounded, and never through a symlink."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from gitops_reconciler.errors import DocumentError
from gitops_reconciler.manifests.parsing import MAX_BYTES

SCOPE_FILES: Final = ("gitops.yaml", "converge.yaml")
"""Names of scope files; a folder holds one of them at most."""

MAX_FILES: Final = 100_000
MAX_TREE_BYTES: Final = 256 << 20
MAX_LISTED: Final = 1_000_000
"""Files and folders that are looked through for one `for_each`."""
_EXTENSIONS = (".json", ".yaml", ".yml")


def is_scope_file(path: str) -> bool:
    """Whether a file says who owns a folder."""
    return path.rpartition("/")[2] in SCOPE_FILES


def is_document(path: str) -> bool:
    """Whether a file has to be a document: by its extension, whatever its name (R1.6); scope files are none."""
    return path.lower().endswith(_EXTENSIONS) and not is_scope_file(path)


def is_json(path: str) -> bool:
    """Whether a file is read as strict JSON."""
    return path.lower().endswith(".json")


def read_folder(root: Path, *, prefix: str = "") -> dict[str, bytes]:
    """Return the documents and scope files below a folder: path -> bytes, the same that git lists of a revision.

    Paths begin with `prefix`, the folder's place in its repository. Symlinks are not followed, `.git` is not entered.
    A file over the limit comes cut, one byte over it, so that whoever reads it refuses it by name.

    Raises:
        DocumentError: there is no such folder, it cannot be read, or it holds too many files.

    """
    try:
        is_folder = stat.S_ISDIR(root.stat().st_mode)
    except (OSError, ValueError) as error:
        message = f"stat {root}: {(getattr(error, 'strerror', None) or str(error)).lower()}"
        raise DocumentError(message) from error
    if not is_folder:
        message = f"{root} is not a directory"
        raise DocumentError(message)
    files: dict[str, bytes] = {}
    size = 0
    pending = [(root, PurePosixPath(prefix))]
    while pending:
        folder, place = pending.pop()
        for entry in _entries(folder):
            path = place / entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name.lower() != ".git":
                    pending.append((folder / entry.name, path))
            elif entry.is_file(follow_symlinks=False) and (is_document(entry.name) or is_scope_file(entry.name)):
                files[str(path)] = _read(folder / entry.name)
                size += len(files[str(path)])
        check_size(str(root), count=len(files), size=size)
    return dict(sorted(files.items()))


def files_below(root: Path) -> Callable[[str], list[str]]:
    """Return what lists the files of a repository on disk, below one of its folders, by their paths from the root.

    Symlinks are not followed, `.git` is not entered. What it returns raises `DocumentError` for a folder that cannot be
    read, or that holds too many files.
    """

    def listed(folder: str) -> list[str]:
        top = root / folder
        if not top.is_dir() or any((root / parent).is_symlink() for parent in _ways(folder)):
            return []
        return sorted(_walk(root, PurePosixPath(folder)))

    return listed


def _ways(folder: str) -> Iterator[PurePosixPath]:
    path = PurePosixPath(folder)
    return iter((path, *path.parents[:-1]) if folder else ())


def _walk(root: Path, top: PurePosixPath) -> Iterator[str]:
    pending, seen = [top], 0
    while pending:
        place = pending.pop()
        for entry in _entries(root / place):
            seen += 1
            if seen > MAX_LISTED:
                message = f"{root / top} holds too many files (at most {MAX_LISTED})"
                raise DocumentError(message)
            if entry.is_dir(follow_symlinks=False):
                if entry.name.lower() != ".git":
                    pending.append(place / entry.name)
            elif entry.is_file(follow_symlinks=False):
                yield str(place / entry.name)


def check_size(root: str, *, count: int, size: int) -> None:
    """Refuse a tree that is too large to be one.

    Raises:
        DocumentError: says how much is allowed.

    """
    if count > MAX_FILES or size > MAX_TREE_BYTES:
        message = f"{root} is too large (at most {MAX_FILES} documents and {MAX_TREE_BYTES >> 20} MiB)"
        raise DocumentError(message)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise _unreadable(folder, error) from error


def _read(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DocumentError:
    return DocumentError(f"read {path}: {os.strerror(error.errno or 0).lower()}")
