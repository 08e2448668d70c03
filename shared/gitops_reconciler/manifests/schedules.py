"""Cron expressions and time zones are checked where they are declared, not when they first come due."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from zoneinfo import ZoneInfo

from gitops_reconciler.manifests.problems import shown

_CRON_FIELDS = 5
_THIS_HOST = frozenset({"localtime", "posixrules"})  # files of the database that differ from host to host


def check_cron(expression: str) -> None:
    """Refuse an expression that is none; the library refuses what never comes due, as the 31st of April.

    Raises:
        ValueError: says what is wrong, or that the library for cron is not installed here.

    """
    if len(expression.split()) != _CRON_FIELDS:
        message = f"{shown(expression)} is no cron expression (five fields: minute hour day month weekday)"
        raise ValueError(message)
    try:
        # Of the extra `worker`: whoever runs schedules has it, and nobody else needs it.
        cronsim = import_module("cronsim")
    except ImportError:
        message = "cannot be checked: cronsim is not installed (pip install 'gitops-reconciler[worker]')"
        raise ValueError(message) from None
    try:
        cronsim.CronSim(expression, datetime.now(UTC))
    except cronsim.CronSimError as error:
        text = str(error)
        message = f"{shown(expression)} is no cron expression: {text[:1].lower()}{text[1:]}"
        raise ValueError(message) from None


def check_time_zone(name: str) -> None:
    """Refuse a name that is not in the time zone database.

    Raises:
        ValueError: says what is allowed.

    """
    try:
        is_known = name not in _THIS_HOST and bool(ZoneInfo(name).key)
    except (ValueError, LookupError, OSError):
        is_known = False
    if not is_known:
        message = f"{shown(name)} is no time zone (as in Europe/Berlin, UTC)"
        raise ValueError(message)
