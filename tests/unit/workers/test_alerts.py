"""From an event to an alert, and how long a channel is left alone."""

from datetime import UTC, datetime

import pytest

from gitops_workers.notifier import alert_of, backoff_seconds

FAILED = {
    "event": "failed",
    "item": "default/web",
    "kind": "terraform",
    "reason": "ApplyFailed",
    "message": "exit 1",
    "run": "0" * 32,
    "revision": "a" * 40,
    "at": "1795972200342",
}


def test_an_alert_says_what_the_event_knows() -> None:
    alert = alert_of(FAILED)
    assert alert is not None
    assert (alert.event, alert.target, alert.kind) == ("failed", "default/web", "terraform")
    assert (alert.reason, alert.message) == ("ApplyFailed", "exit 1")
    assert alert.at == datetime(2026, 11, 29, 17, 10, 0, 342_000, tzinfo=UTC)


@pytest.mark.parametrize("event", ["ended", "changed", "suspended", "resumed", "lost", "unlocked", "destroyed", ""])
def test_events_that_nobody_needs_to_be_woken_for_are_no_alerts(event: str) -> None:
    assert alert_of({**FAILED, "event": event}) is None


def test_a_breakage_and_its_recovery_share_one_key_so_that_a_pager_can_close_it() -> None:
    found = [alert_of({**FAILED, "event": event}) for event in ("failed", "unreachable", "stalled", "recovered")]
    assert {alert.key for alert in found if alert} == {"default/web:broken"}


def test_a_stale_document_is_another_matter_than_a_broken_target() -> None:
    alert = alert_of({"event": "stale", "item": "default/web", "kind": "x", "actor": "source", "reason": "", "at": "1"})
    assert alert is not None
    assert alert.key == "default/web:stale"


def test_what_befalls_the_whole_fleet_is_an_alert_without_a_target() -> None:
    paused = alert_of({"event": "paused", "item": "", "message": "the store was emptied", "at": "1"})
    resumed = alert_of({"event": "resumed", "item": "", "message": "by ann", "at": "2"})
    assert paused is not None
    assert resumed is not None
    assert (paused.target, paused.message, paused.is_good) == ("", "the store was emptied", False)
    assert resumed.is_good
    assert paused.key == resumed.key == "the fleet:paused"


def test_each_pool_that_dies_is_a_breakage_of_its_own_and_its_recovery_closes_that_one() -> None:
    events = [("pool_dead", "custom"), ("pool_alive", "custom"), ("pool_dead", "pi")]
    found = [alert_of({"event": event, "item": "", "pool": pool, "at": "1"}) for event, pool in events]
    keys = [alert.key for alert in found if alert]
    assert keys == ["the pool custom:dead", "the pool custom:dead", "the pool pi:dead"]


def test_the_pauses_between_attempts_double_from_ten_seconds_to_a_quarter_of_an_hour() -> None:
    assert [backoff_seconds(attempts) for attempts in (1, 2, 3, 7, 8, 100)] == [10, 20, 40, 640, 900, 900]
