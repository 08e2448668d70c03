"""Webhook secrets: a file per endpoint, one secret per line, read again when the file changes."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gitops_services.receiver.base import Secrets
from gitops_services.receiver.signatures import SIGNING_PREFIX, signing_key

_log = logging.getLogger(__name__)
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_LARGEST_FILE = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Read:
    stamp: tuple[int, int, int]
    secrets: Secrets | None


class SecretFiles:
    """The secrets below one folder. An endpoint without any does not exist: it answers 404."""

    def __init__(self, folder: Path) -> None:
        """Look in this folder; it may appear later."""
        self._folder = folder
        self._prefix = f"{folder}{os.sep}"
        self._read: dict[str, _Read] = {}

    def of(self, provider: str, endpoint_id: str = "") -> Secrets | None:
        """Return what an endpoint accepts now; None when it has no secret."""
        if endpoint_id and not _ID.fullmatch(endpoint_id):
            return None
        name = f"{provider}.{endpoint_id}" if endpoint_id else provider
        try:
            status = os.stat(self._prefix + name)  # noqa: PTH116  # once per delivery: a fifth of the time of a Path
        except (OSError, ValueError):
            self._read.pop(name, None)
            return None
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._read.get(name)
        if known is None or known.stamp != stamp:
            known = self._read[name] = _Read(stamp, self._load(name))
        return known.secrets

    def any_of(self, providers: Iterable[str]) -> bool:
        """Whether there is a secret for any endpoint of these providers."""
        try:
            names = sorted(entry.name for entry in self._folder.iterdir())
        except OSError:
            return False
        known = set(providers)
        return any(self.of(*name.split(".", 1)) for name in names if name.split(".", 1)[0] in known)

    def _load(self, name: str) -> Secrets | None:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST_FILE + 1)
        except OSError as error:
            _log.warning(
                "webhook secret file can't be read, so its endpoint answers 404",
                extra={"file": name, "why": error.strerror},
            )
            return None
        if len(content) > _LARGEST_FILE:
            _log.warning("webhook secret file is too large, so its endpoint answers 404", extra={"file": name})
            return None
        values = tuple(line for line in content.replace(b"\r\n", b"\n").split(b"\n") if line.strip())
        for value in values:
            if value.startswith(SIGNING_PREFIX) and signing_key(value) is None:
                _log.warning("a signing token of the secret file is malformed and never verifies", extra={"file": name})
        return Secrets(values=values) if values else None
