"""One `gitops up` per state folder: a lock that ends with its process, and a file that says who it is."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gitops_reconciler.errors import StateFolderBusyError
from gitops_reconciler.layout import Layout


@dataclass(frozen=True, slots=True)
class Owner:
    """We own the folder."""

    layout: Layout

    def introduce(self, facts: Mapping[str, Any]) -> None:
        """Write who we are, whole or not at all."""
        path = self.layout.up_file
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), **facts}, file, indent=2)
            file.write("\n")
        draft.replace(path)


@contextmanager
def owned(layout: Layout) -> Iterator[Owner]:
    """Own the folder while the body runs.

    Raises:
        StateFolderBusyError: another one does; names its pid and address.

    """
    descriptor = os.open(layout.up_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateFolderBusyError(
                f"another `gitops up` runs on '{layout.root}' ({_who(layout)}): "
                "stop it, or choose another folder with --state-dir"
            ) from None
        layout.up_file.unlink(missing_ok=True)  # a killed one left it
        try:
            yield Owner(layout)
        finally:
            layout.up_file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _who(layout: Layout) -> str:
    facts = _facts(layout)
    if "pid" not in facts:
        return "it has just begun"
    return f"pid {facts['pid']}, {facts.get('url', 'no address yet')}"


def _facts(layout: Layout) -> dict[str, Any]:
    try:
        facts = json.loads(layout.up_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
