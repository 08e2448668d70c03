"""Where a mirror lies, what its last fetches found, and how a damaged one is replaced."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from gitops_reconciler.git.base import Revision
from gitops_reconciler.git.repositories import replace_file, sync_folder
from gitops_reconciler.git.urls import Remote

_log = logging.getLogger("gitops_reconciler")
_LONGEST_SLUG = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a fetch found at a ref, and which asks it covers: it began after counter `asked` of `epoch` was read."""

    tip: str
    """What the remote said: of an annotated tag not the commit."""
    sha: str
    subject: str
    epoch: str = ""
    asked: int = -1

    def covers(self, asked: tuple[str, int] | None) -> bool:
        """Whether the fetch began after the ask. Counters of another epoch say nothing."""
        return asked is not None and asked[0] == self.epoch and self.asked >= asked[1]

    def after(self, asked: tuple[str, int] | None) -> Found:
        """Return the same, found again by a look that began after an ask."""
        return self if asked is None else replace(self, epoch=asked[0], asked=asked[1])

    def revision(self, *, fetched: bool) -> Revision:
        """Return it as the contract names it."""
        return Revision(sha=self.sha, subject=self.subject, fetched=fetched)


@dataclass(frozen=True, slots=True)
class MirrorFolder:
    """The places of one mirror. Keyed by the exact address: another URL is another repository (G59)."""

    root: Path
    name: str

    @classmethod
    def of(cls, root: Path, remote: Remote) -> MirrorFolder:
        """Return the places of a remote's mirror: a name that people recognise, and a digest that is exact."""
        address = remote.address.rstrip("/")
        words = f"{remote.host}-{remote.path.removesuffix('.git')}".lower()
        slug = re.sub(r"[^a-z0-9.]+", "-", words).strip("-.")[-_LONGEST_SLUG:].lstrip("-.")
        digest = hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return cls(root, f"{slug}-{digest}")

    @property
    def git_dir(self) -> Path:
        """The bare repository."""
        return self.root / f"{self.name}.git"

    @property
    def lock(self) -> Path:
        """The file lock, beside the repository, since that may be replaced."""
        return self.root / f"{self.name}.lock"

    @property
    def login(self) -> Path:
        """Where a login lies while git uses it."""
        return self.root / f"{self.name}.login"

    @property
    def exists(self) -> bool:
        """Whether there is a complete mirror: half a clone lies under another name."""
        return self.git_dir.is_dir()

    @property
    def _state(self) -> Path:
        return self.git_dir / "gitops-state.json"

    @property
    def _damage(self) -> Path:
        return self.git_dir / "gitops-damaged"

    @property
    def is_damaged(self) -> bool:
        """Whether somebody met damage that no fetch repairs."""
        return self._damage.exists()

    def mark_damaged(self, why: str) -> None:
        """Have the next fetch make the mirror anew."""
        if self.exists:
            replace_file(self._damage, why)

    @property
    def born(self) -> str:
        """Tells one mirror at this place from the one that replaced it."""
        return str(_read_json(self._state).get("born", ""))

    def found(self, ref: str) -> Found | None:
        """Return what the last fetch of a ref found; readable without the lock."""
        entry = _read_json(self._state).get("refs", {}).get(ref)
        try:
            return None if entry is None else Found(**entry)
        except TypeError:
            return None

    def remember(self, ref: str, found: Found) -> None:
        """Keep what a fetch found, in one step; only under the lock. A state that gets lost costs one fetch."""
        state = _read_json(self._state)
        refs = {**state.get("refs", {}), ref: asdict(found)}
        text = json.dumps({"born": state.get("born") or uuid4().hex, "refs": refs}, indent=1, sort_keys=True)
        replace_file(self._state, text, is_durable=False)

    def draft(self) -> Path:
        """Return a new place for a clone to be; what killed clones left is removed. Only under the lock."""
        for left in self.root.glob(f"{self.name}.new-*"):
            shutil.rmtree(left, ignore_errors=True)
        return self.root / f"{self.name}.new-{uuid4().hex}"

    def put_in_place(self, draft: Path) -> Path | None:
        """Make a complete draft the mirror; returns where the one before lies now. Only under the lock."""
        sync_folder(draft)
        before = None
        if self.git_dir.exists():
            for older in self.root.glob(f"{self.name}.damaged-*"):
                shutil.rmtree(older, ignore_errors=True)
            before = self.root / f"{self.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
            self.git_dir.rename(before)
            _log.warning("damaged git mirror set aside", extra={"path": str(before)})
        draft.rename(self.git_dir)
        sync_folder(self.root)
        return before


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
