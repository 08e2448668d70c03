"""Patterns of file names: those of `ignore`, which mean folders too, and those of `for_each`, which mean files."""

from __future__ import annotations

from fnmatch import fnmatchcase

_ANY_FOLDERS = "**"
_WILD = frozenset("*?[")


def matches(pattern: str, parts: tuple[str, ...]) -> bool:
    """Whether a pattern of `ignore` means a path, given in parts from the scope's folder.

    As in a .gitignore: without a slash it means a file or folder of that name at any depth, with one it begins in the
    scope's folder; `*` stays within a name, `**` spans folders; what lies in a folder that is meant is meant too.
    """
    wanted = [part for part in pattern.split("/") if part]
    if "/" not in pattern.rstrip("/"):
        wanted.insert(0, _ANY_FOLDERS)
    wanted = _simplified(wanted)
    meant = parts[:-1] if pattern.endswith("/") else parts
    reached = _past_any(wanted, {0})
    for part in meant:
        reached = _past_any(wanted, _after(wanted, reached, part))
        if len(wanted) in reached:
            return True
    return False


def fits(pattern: str, path: str) -> bool:
    """Whether a pattern means exactly this file, both from the same folder; `*` stays within a name, `**` spans."""
    wanted = _simplified(pattern.split("/"))
    reached = _past_any(wanted, {0})
    for part in path.split("/"):
        reached = _past_any(wanted, _after(wanted, reached, part))
        if not reached:
            return False
    return len(wanted) in reached


def fixed_folder(pattern: str) -> str:
    """Return the folder that all files lie in that a pattern can mean; empty: anywhere."""
    parts = pattern.split("/")
    wild = next((index for index, part in enumerate(parts) if set(part) & _WILD), len(parts) - 1)
    return "/".join(parts[:wild])


def _simplified(wanted: list[str]) -> list[str]:
    """One `**` after another means no more than the first."""
    return [part for index, part in enumerate(wanted) if part != _ANY_FOLDERS or wanted[index - 1 : index] != [part]]


def _after(wanted: list[str], reached: set[int], part: str) -> set[int]:
    """Return how many wanted names may be behind us after one more folder or file."""
    after = set()
    for index in reached:
        if index < len(wanted):
            if wanted[index] == _ANY_FOLDERS:
                after.add(index)
            elif fnmatchcase(part, wanted[index]):
                after.add(index + 1)
    return after


def _past_any(wanted: list[str], reached: set[int]) -> set[int]:
    """Add what `**` that stands for no folder at all leads to."""
    return reached | {index + 1 for index in reached if index < len(wanted) and wanted[index] == _ANY_FOLDERS}
