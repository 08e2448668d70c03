"""Refs: which names may be fetched, and where they are kept in a mirror."""

from __future__ import annotations

import re

from gitops_reconciler.errors import SpecError

BRANCHES = "refs/heads/"
TAGS = "refs/tags/"
KEEPERS = "refs/gitops/"

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HEX = re.compile(r"(?i)[0-9a-f]{40}(?:[0-9a-f]{24})?")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
_LONGEST_PART = 255  # bytes: a part of a ref becomes a file name
_SHOWN = 100


def is_sha(text: str) -> bool:
    """Whether this is a full object id: 40 or 64 lower-case hex digits, the only thing checkout and reset may get."""
    return _SHA.fullmatch(text) is not None


def check_branch(name: str) -> str:
    """Return the full ref of a branch name.

    Raises:
        SpecError: git, or a person, could take the name for something else (G01, G02, G11, G47).

    """
    return BRANCHES + _checked(name, "branch")


def check_tag(name: str) -> str:
    """Return the full ref of a tag name.

    Raises:
        SpecError: as for a branch.

    """
    return TAGS + _checked(name, "tag")


def check_ref(ref: str) -> str:
    """Return a full ref (`refs/heads/…`, `refs/tags/…`) or full SHA unchanged.

    Raises:
        SpecError: it is neither, or its name is not allowed.

    """
    if is_sha(ref):
        return ref
    if ref.startswith(BRANCHES):
        return check_branch(ref.removeprefix(BRANCHES))
    if ref.startswith(TAGS):
        return check_tag(ref.removeprefix(TAGS))
    raise SpecError(f"'{_shown(ref)}' is no full ref (allowed: refs/heads/BRANCH, refs/tags/TAG, a full SHA)")


def describe(ref: str) -> str:
    """Return how people call a ref: `branch 'main'`, `tag 'v1'`, `commit '…'`."""
    for prefix, word in ((BRANCHES, "branch"), (TAGS, "tag")):
        if ref.startswith(prefix):
            return f"{word} '{_shown(ref.removeprefix(prefix))}'"
    return f"commit '{ref}'"


def tracking_ref(ref: str) -> str:
    """Return where a mirror keeps a ref of its remote."""
    return f"refs/remotes/origin/{ref.removeprefix(BRANCHES)}" if ref.startswith(BRANCHES) else ref


def refspecs(ref: str) -> tuple[str, ...]:
    """Return what is fetched for a ref: never `--mirror`, which brings refs/replace and pull requests (G27, G28)."""
    if is_sha(ref):
        # Not the SHA itself: a forge also serves commits of foreign forks under it (G54).
        return (f"+{BRANCHES}*:refs/remotes/origin/*", f"+{TAGS}*:{TAGS}*")
    return (f"+{ref}:{tracking_ref(ref)}",)


def keeper_ref(group: str, name: str) -> str:
    """Return the ref that holds on to a commit for a target; what git does not allow in a ref is escaped."""
    return f"{KEEPERS}{group}/" + "/".join(_escaped(part) for part in name.split("/"))


def _escaped(part: str) -> str:
    doubtful = part.startswith((".", "-")) or part.endswith((".lock", ".")) or ".." in part or _FORBIDDEN.search(part)
    return "".join(c if c.isalnum() or c in "_-" else f"%{ord(c):02X}" for c in part) if doubtful or not part else part


def _shown(name: str) -> str:
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)
    return clean[:_SHOWN]


def _checked(name: str, word: str) -> str:
    why = _fault(name)
    if why:
        raise SpecError(f"{word} name '{_shown(name)}' {why}")
    return name


def _fault(name: str) -> str:
    """Return what is wrong with a name; the rules of `git check-ref-format --branch`, and some more."""
    parts = name.split("/")
    faults = (
        (not name, "is empty"),
        (name.startswith("-"), "begins with '-', which git would take for an option"),
        (
            name in {"@", "HEAD"} or name.startswith("refs/") or _HEX.fullmatch(name),
            "would be taken for another ref (give the bare name, not '@', 'HEAD', 'refs/…' or a SHA)",
        ),
        (
            _FORBIDDEN.search(name) or name.endswith(".") or not name.isprintable(),
            "has what git does not allow in a name (space, ~ ^ : ? * [ \\, '..', '@{', '//', a final '.', control)",
        ),
        (
            any(not part or part.startswith(".") or part.endswith(".lock") for part in parts),
            "has a part that is empty, begins with '.' or ends in '.lock'",
        ),
        (
            any(len(part.encode("utf-8", "surrogateescape")) > _LONGEST_PART for part in parts),
            f"has a part of more than {_LONGEST_PART} bytes",
        ),
    )
    return next((why for is_fault, why in faults if is_fault), "")
