"""Orders refuse times that could not keep the lease's promise."""

from typing import Any

import pytest

from gitops_reconciler.errors import SpecError
from gitops_reconciler.supervise.order import Order

DEFAULTS: dict[str, Any] = {
    "run": "0123456789abcdef" * 2,
    "item": "default/web",
    "kind": "terraform",
    "token": 1_700_000_000_000_001,
    "generation": 3,
    "ttl_seconds": 60.0,
    "renewal_seconds": 10.0,
    "grace_seconds": 25.0,
    "deadline_seconds": 3600.0,
    "claimed_at": 1000.0,
    "lock": "/locks/web.lock",
    "leftover": "/locks/web.run",
    "log": "/runs/web.log",
}


def order(**fields: Any) -> Order:
    return Order(**{**DEFAULTS, **fields})


def test_an_order_survives_its_journey_as_json() -> None:
    sent = order(payload={"tree": ["ä", 1, None]})

    assert Order.from_json(sent.to_json()) == sent


def test_the_window_is_what_the_lease_leaves_after_grace_and_slack() -> None:
    assert order().window_seconds == 33.0
    assert order().deadline_at == 4600.0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"run": "not-a-run"}, "32 hexadecimal digits"),
        ({"run": "f" * 33}, "32 hexadecimal digits"),
        ({"grace_seconds": 30.5}, "at most half"),
        ({"renewal_seconds": 33.0}, "must come sooner than 33 s"),
    ],
)
def test_impossible_orders_are_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        order(**fields)
