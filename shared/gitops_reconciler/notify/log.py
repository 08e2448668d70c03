"""The channel of a fleet that has no other: one line in the log."""

from __future__ import annotations

import logging

from gitops_reconciler.notify.base import Alert

_log = logging.getLogger("gitops_reconciler")


class LogChannel:
    """Writes an ERROR when something breaks and an INFO when it is well again."""

    def send(self, alert: Alert) -> None:
        """Log the alert; this never fails."""
        _log.log(
            logging.INFO if alert.is_good else logging.ERROR,
            "%s %s: %s",
            alert.target or "fleet",
            alert.event.replace("_", " "),
            alert.message or alert.reason or "no details",
            extra={"kind": alert.kind, "reason": alert.reason, "run": alert.run, "revision": alert.revision},
        )
