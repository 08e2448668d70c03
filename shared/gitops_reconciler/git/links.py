"""Symlinks of a tree that lead out of it: whoever may push could else have any file of this machine read (G17)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gitops_reconciler.errors import SpecError
from gitops_reconciler.git.objects import LINK, Objects

_LONGEST_TARGET_BYTES = 4096
_MOST_HOPS = 40  # the kernel's own limit
_SHOWN = 5


def refuse_escaping_links(objects: Objects, tree: str, *, within: str, what: str) -> None:
    """Check every symlink below a folder of a tree, through all others that it goes over.

    Raises:
        SpecError: names those that leave the tree, and where they lead.

    """
    links = {
        path: os.fsdecode(objects.blob(entry.oid, _LONGEST_TARGET_BYTES, path))
        for path, entry in objects.walk(tree)
        if entry.mode == LINK
    }
    folder = within.strip("/")
    mine = [path for path in links if not folder or path == folder or path.startswith(f"{folder}/")]
    escaping = [f"'{path}' -> '{links[path]}'" for path in sorted(mine) if leaves_tree(path, links)]
    if escaping:
        more = f" and {len(escaping) - _SHOWN} more" if len(escaping) > _SHOWN else ""
        listed = ", ".join(escaping[:_SHOWN]).encode("utf-8", "backslashreplace").decode()
        raise SpecError(
            f"{what} has symlinks that leave the repository: {listed}{more}; remove them, nothing was changed"
        )


def leaves_tree(path: str, links: Mapping[str, str]) -> bool:
    """Whether a symlink leads out of the tree, given all symlinks of it: path -> target. A loop leads nowhere."""
    here: list[str] = []
    pending = path.split("/")[::-1]
    hops = 0
    while pending:
        part = pending.pop()
        if part == "..":
            if not here:
                return True
            here.pop()
        elif part not in {"", "."}:
            here.append(part)
            target = links.get("/".join(here))
            if target is None:
                continue
            hops += 1
            if target.startswith("/"):
                return True
            if hops > _MOST_HOPS:
                return False
            here.pop()
            pending.extend(target.split("/")[::-1])
    return False
