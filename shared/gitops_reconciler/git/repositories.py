"""The folders of our own repositories: laid out by us, without templates, tidied of what a killed git left behind."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from gitops_reconciler.errors import GitError
from gitops_reconciler.git.refs import is_sha

_log = logging.getLogger("gitops_reconciler")
_LONGEST_REF_FILE = 1 << 12
_SHA1_DIGITS = 40
# Where git itself puts files while it writes objects, and leaves them when it is killed (G81).
_LEFTOVERS = ("tmp_*", "pack/tmp_*", "pack/.tmp-*", "??/tmp_obj_*", "info/*.lock", "pack/*.lock")


def lay_out(git_dir: Path, *, digits: int, is_bare: bool, lends_from: Path | None = None, url: str = "") -> None:
    """Make a repository's folder, or bring back what is wrong of it; objects, refs and index are not touched.

    `digits` is the length of its object ids, `lends_from` another objects folder that it reads from. This is the
    documented layout (gitrepository-layout), the same as of `git init --template=`.
    """
    for folder in ("objects/info", "objects/pack", "refs/heads"):
        (git_dir / folder).mkdir(parents=True, exist_ok=True)
    _write_if_other(git_dir / "config", _config(digits=digits, is_bare=is_bare, url=url))
    if lends_from is not None:
        # Relative, so that the state folder may be moved as a whole (G73).
        objects = os.path.relpath(lends_from.resolve(), (git_dir / "objects").resolve())
        _write_if_other(git_dir / "objects" / "info" / "alternates", f"{objects}\n")
    if not _has_head(git_dir):
        _write_if_other(git_dir / "HEAD", "ref: refs/heads/gitops-none\n")


def _config(*, digits: int, is_bare: bool, url: str) -> str:
    is_sha1 = digits == _SHA1_DIGITS
    lines = [
        "[core]",
        f"\trepositoryformatversion = {0 if is_sha1 else 1}",
        "\tfilemode = true",
        f"\tbare = {str(is_bare).lower()}",
        "\tlogallrefupdates = false",
    ]
    if not is_sha1:
        lines += ["[extensions]", "\tobjectformat = sha256"]
    if url:
        # For tools that look where a folder comes from; we never fetch by this name.
        escaped = url.replace("\\", "\\\\").replace('"', '\\"')
        lines += ['[remote "origin"]', f'\turl = "{escaped}"']
    return "\n".join(lines) + "\n"


def _has_head(git_dir: Path) -> bool:
    return head_of(git_dir) is not None or _first_line(git_dir / "HEAD").startswith("ref: refs/")


def head_of(git_dir: Path) -> str | None:
    """Return the commit of a detached HEAD; None when there is none."""
    head = _first_line(git_dir / "HEAD")
    return head if is_sha(head) else None


def read_ref(git_dir: Path, ref: str) -> str | None:
    """Return the object id of a full ref, without starting git; None when it is not there."""
    found = _first_line(git_dir / ref)
    if is_sha(found):
        return found
    with suppress(OSError):
        packed = (git_dir / "packed-refs").read_text(encoding="utf-8", errors="surrogateescape")
        match = re.search(rf"^([0-9a-f]+) {re.escape(ref)}$", packed, re.MULTILINE)
        return match[1] if match else None
    return None


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_REF_FILE).partition(b"\n")[0].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def replace_file(path: Path, text: str, *, is_durable: bool = True) -> None:
    """Replace a file in one step, so that a reader sees the old one or the new one.

    Durable: that holds for a power loss too. Else the file may be empty after one, but nothing waits for the disk.
    """
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _write_if_other(path: Path, text: str) -> None:
    with suppress(OSError):
        if path.read_text(encoding="utf-8", errors="surrogateescape") == text:
            return
    replace_file(path, text)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last over a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale_locks(git_dir: Path) -> None:
    """Remove lock files of a git that was killed (G75, G76): only under our own lock, then nobody can own them."""
    found = [*git_dir.glob("*.lock"), *(path for path in _refs_below(git_dir) if path.suffix == ".lock")]
    for path in found:
        path.unlink(missing_ok=True)
        _log.warning("removed a stale git lock", extra={"path": str(path)})


def _refs_below(git_dir: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(git_dir / "refs"):
        yield from (Path(folder, name) for name in names)


def remove_leftovers(git_dir: Path) -> None:
    """Remove locks and half-written objects of a git that was killed: only while our own lock is held."""
    remove_stale_locks(git_dir)
    for pattern in _LEFTOVERS:
        for path in (git_dir / "objects").glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def check_owner(folder: Path) -> None:
    """Refuse a repository of somebody else: with an explicit --git-dir git does not (G69).

    Raises:
        GitError: says whose it is.

    """
    owner = folder.stat().st_uid
    if owner not in {os.geteuid(), 0}:
        raise GitError(
            f"'{folder}' belongs to user {owner}, not to us ({os.geteuid()}): change its owner, or remove it"
        )
