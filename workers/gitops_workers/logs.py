"""Celery logs the way all our roles do, and says nothing twice."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from celery import signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning

from gitops_reconciler.logs import set_up_logging
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.settings import Settings
from gitops_reconciler.wiring import own_secrets

_CHATTY = {
    "celery.worker.strategy": logging.WARNING,  # a line for each message; runs have their own
    "celery.app.trace": logging.WARNING,
    "celery.beat": logging.WARNING,
    "celery.worker.consumer.consumer": logging.WARNING,
    "kombu": logging.WARNING,
    "kombu.transport.redis": logging.ERROR,  # a traceback each second while memory is full; presence says it once
    "flower": logging.ERROR,  # inspecting a worker that is just starting
    "tornado.access": logging.ERROR,
}


def hook_logging(settings: Settings) -> None:
    """Take over the set-up of logs in this process; a connected receiver keeps Celery from its own."""

    def set_up(**_: Any) -> None:
        set_up_role_logging(settings)

    signals.setup_logging.connect(set_up, weak=False, dispatch_uid="gitops-logs")
    signals.celeryd_after_setup.connect(_quiet_warnings, weak=False, dispatch_uid="gitops-warnings")
    warnings.filterwarnings("ignore", category=SecurityWarning)  # root is normal in containers; only JSON is accepted


def set_up_role_logging(settings: Settings) -> None:
    """Log as the settings say, less what is said too often."""
    set_up_logging(settings.log_format, settings.log_level, redactor=Redactor(own_secrets(settings)))
    for name, level in _CHATTY.items():
        logging.getLogger(name).setLevel(level)


def _quiet_warnings(**_: Any) -> None:
    """Drop what Celery warns of at each reconnect about settings that were chosen on purpose."""
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)
