"""How asks are put to the scripts and their answers read: the same for the blocking client and the asynchronous one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gitops_reconciler.work.base import Answer, Ask, Cause

DELIVERY_REMEMBERED_SECONDS = 3 * 24 * 3600  # a forge's window for a manual redelivery


def request_arguments(items: Sequence[str], cause: Cause) -> list[str]:
    """Return the arguments of `request` after the header."""
    return [_cause(cause), *items]


def push_arguments(refs: Sequence[str], cause: Cause, delivery: str | None) -> list[str]:
    """Return the arguments of `push` after the header."""
    return [_cause(cause), delivery or "", str(DELIVERY_REMEMBERED_SECONDS), *refs]


def read_requested(items: Sequence[str], told: Any) -> list[Ask]:
    """Read the answer of `request` for these items."""
    return [_ask(item, *answer) for item, answer in zip(items, told, strict=True)]


def read_pushed(told: Any) -> list[Ask] | None:
    """Read the answer of `push`; None: this delivery was seen before."""
    if told.get("seen"):
        return None
    return [_ask(*row) for row in told.get("asks") or []]


def _cause(cause: Cause) -> str:
    return json.dumps({"trigger": cause.trigger.value, "actor": cause.actor})


def _ask(item: str, answer: str, generation: str) -> Ask:
    return Ask(item=item, answer=Answer(answer), generation=int(generation))
