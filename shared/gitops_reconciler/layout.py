"""Where things lie in the state folder (DESIGN section 8); the only module that knows its paths.

No two targets share a path, and none lies below that of another. Names begin and end with a letter or digit, so an
underscore there makes a path that no name can have.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

DEFAULT_SOURCE = "default"
_LONGEST_SOCKET_PATH = 100  # bytes; the kernel's limit for a unix socket is 107


def default_state_dir() -> Path:
    """Return /var/lib/gitops-reconciler for root, else the XDG state folder of this user."""
    if os.geteuid() == 0:
        return Path("/var/lib/gitops-reconciler")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "gitops-reconciler"


def _folder_of(target: str) -> str:
    """Return the folder of a target: its short name in source `default`, else `_source/name`."""
    source, slash, name = target.rpartition("/")
    return name if not slash or source == DEFAULT_SOURCE else f"_{source}/{name}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below one state folder. A target is named `name` (local use) or `source/name` (fleet)."""

    root: Path

    @property
    def up_file(self) -> Path:
        """Who runs `gitops up` on this folder: pid, url, started."""
        return self.root / "up.json"

    @property
    def up_lock(self) -> Path:
        """Locked by whoever runs `gitops up` on this folder."""
        return self.root / "up.lock"

    @property
    def redis(self) -> Path:
        """Data of the embedded server."""
        return self.root / "redis"

    @property
    def redis_socket(self) -> Path:
        """The embedded server's socket; in the runtime folder where the path would be too long for the kernel."""
        inside = self.redis / "redis.sock"
        if len(os.fsencode(inside)) <= _LONGEST_SOCKET_PATH:
            return inside
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/gitops-{os.geteuid()}")  # noqa: S108  # 0700, made by us
        return runtime / f"redis-{zlib.crc32(os.fsencode(self.root)):08x}.sock"

    @property
    def mirrors(self) -> Path:
        """Bare mirrors, one per repository URL."""
        return self.root / "git" / "mirror"

    @property
    def engine_locks(self) -> Path:
        """Notes on the commands of this host that lock a state, so that a lock left behind can be proved ours."""
        return self.root / "engine"

    @property
    def secrets(self) -> Path:
        """Secrets that the program itself made (webhook secrets, first token)."""
        return self.root / "secrets"

    @property
    def webhook_secrets(self) -> Path:
        """The webhook secrets that `gitops up` made, a file each endpoint."""
        return self.secrets / "webhooks"

    @property
    def flower_password(self) -> Path:
        """The password of Flower."""
        return self.secrets / "flower"

    @property
    def epoch_file(self) -> Path:
        """The epoch of the store that this host last worked with."""
        return self.root / "epoch"

    @property
    def logs(self) -> Path:
        """Logs of runs, one file a run."""
        return self.root / "runs"

    def tree(self, target: str) -> Path:
        """Return the persistent checkout of a target."""
        return self.root / "git" / "trees" / _folder_of(target)

    def home(self, target: str) -> Path:
        """Return what belongs to a target on this host and lies in no checkout: local Terraform state."""
        folder = _folder_of(target)
        return self.root / "targets" / (f"{folder}_" if folder.endswith(".json") else folder)  # a record's name

    def record(self, target: str) -> Path:
        """Return the file store's record of a target."""
        folder = self.root / "targets" / _folder_of(target)
        return folder.with_name(folder.name + ".json")

    @property
    def locks(self) -> Path:
        """Locks of all targets, and the records of runs beside them."""
        return self.root / "locks"

    def lock(self, kind: str, target: str) -> Path:
        """Return the flock of (kind, target): fleet runs and local ticks of one host meet here."""
        path = self.locks / kind / _folder_of(target)
        return path.with_name(path.name + ".lock")

    def leftover(self, kind: str, target: str) -> Path:
        """Return the record that a run leaves beside its lock while anything of it lives."""
        return self.lock(kind, target).with_suffix(".run")

    def log(self, run: str) -> Path:
        """Return the log file of a run."""
        return self.logs / f"{run}.log"
