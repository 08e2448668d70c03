"""Beat's look at the pools: asks that no live worker will ever take are said loudly (DESIGN section 3, promise 4).

What is remembered of a pool lies in the store and one script looks at all of it, so any number of beats may do this.
The log says it too: where no worker lives at all, nobody else can.
"""

from __future__ import annotations

import logging

from gitops_reconciler.settings import Settings
from gitops_reconciler.store.fleet import SILENT_AFTER_MS
from gitops_reconciler.work.base import Work

_log = logging.getLogger("gitops_workers")


def look_at_pools(work: Work, settings: Settings) -> None:
    """Tell of pools that died, and of those that live again. Raises StoreUnavailableError."""
    dead_after_ms = round(settings.pool_dead_after.total_seconds() * 1000)
    news = work.look_at_pools(dead_after_ms=dead_after_ms, silent_after_ms=SILENT_AFTER_MS)
    for pool, message in news.dead:
        _log.error("%s", message, extra={"pool": pool})
    for pool in news.alive:
        _log.info("asks of a pool are served again", extra={"pool": pool})
