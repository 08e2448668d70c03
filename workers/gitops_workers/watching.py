"""What Flower needs from us: a password, and a mark in the store that has workers send task events meanwhile."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Self

from redis.exceptions import RedisError

from gitops_reconciler import keys
from gitops_reconciler.redis_text import AnyRedis, as_text
from gitops_reconciler.secrets import made_secret
from gitops_reconciler.settings import Settings

_log = logging.getLogger("gitops_workers")

FLOWER_USER = "gitops"
_MARK_SECONDS = 15
_RENEWAL_SECONDS = 5.0
_FAREWELL_SECONDS = 3.0


def flower_login(settings: Settings) -> str:
    """Return `user:password`; the password is made at first and stays in the state folder."""
    return f"{FLOWER_USER}:{made_secret(settings.layout.flower_password)}"


class FlowerIsHere:
    """Keeps the mark while the body runs. It expires by itself, so that a killed Flower leaves no events on."""

    def __init__(self, client: AnyRedis) -> None:
        """Set the mark through this client."""
        self._client = as_text(client)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="flower-mark", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.take_away()

    def take_away(self) -> None:
        """Take the mark away, if the store answers soon."""
        self._is_over.set()
        self._thread.join(_FAREWELL_SECONDS)

    def _keep(self) -> None:
        while not self._is_over.is_set():
            try:
                self._client.set(keys.FLOWER, "1", ex=_MARK_SECONDS)
            except (RedisError, OSError) as error:
                _log.debug("mark of Flower not set: %s", error)
            self._is_over.wait(_RENEWAL_SECONDS)
        with suppress(RedisError, OSError):
            self._client.delete(keys.FLOWER)
