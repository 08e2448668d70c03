"""When a schedule is due next: intervals are spread, cron goes by the clock of its time zone."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from gitops_reconciler.runs.ending import cron_due_in_ms, first_due_in_ms
from gitops_reconciler.runs.lease import spread

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def due_times(cron: str, begin: datetime, count: int) -> list[datetime]:
    """The next due times, each computed when the one before was run, to the minute."""
    found, now = [], begin
    for _ in range(count):
        now += timedelta(milliseconds=cron_due_in_ms(cron, "Europe/Berlin", now))
        found.append(now)
        now += timedelta(seconds=20)
    return found


def test_a_time_that_a_day_does_not_have_is_run_once_on_that_day() -> None:
    """On 29 March 2026 the clock goes from 02:00 to 03:00 in Berlin."""
    found = due_times("30 2 * * *", datetime(2026, 3, 28, 12, tzinfo=UTC), 2)
    days = [at.astimezone(BERLIN).date().isoformat() for at in found]
    assert days == ["2026-03-29", "2026-03-30"]
    assert found[0] == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)  # 03:00, as soon as the gap is over
    assert found[1] == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)


def test_a_time_that_a_day_has_twice_is_run_once_on_that_day() -> None:
    """On 25 October 2026 the clock goes from 03:00 back to 02:00 in Berlin."""
    found = due_times("30 2 * * *", datetime(2026, 10, 24, 12, tzinfo=UTC), 2)
    assert found == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]


def test_what_runs_every_ten_minutes_does_so_through_both_hours() -> None:
    found = due_times("*/10 * * * *", datetime(2026, 10, 24, 23, 59, tzinfo=UTC), 13)
    assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=10)}


def test_a_cron_time_goes_by_its_zone_in_summer_and_in_winter() -> None:
    summer, winter = datetime(2026, 7, 1, 0, tzinfo=UTC), datetime(2026, 12, 1, 0, tzinfo=UTC)
    assert cron_due_in_ms("0 8 * * *", "Europe/Berlin", summer) == 6 * 3_600_000
    assert cron_due_in_ms("0 8 * * *", "Europe/Berlin", winter) == 7 * 3_600_000
    assert cron_due_in_ms("0 8 * * *", "UTC", summer) == 8 * 3_600_000


@pytest.mark.parametrize("schedule", [{}, {"interval": 0}])
def test_without_a_schedule_nothing_is_due(schedule: dict[str, int]) -> None:
    assert not first_due_in_ms(schedule, "default/web", NOW)


def test_targets_that_get_the_same_interval_together_are_spread_evenly_over_it() -> None:
    found = [first_due_in_ms({"interval": 600}, f"default/t{number}", NOW) or 0 for number in range(1000)]
    assert all(0 < at <= 600_000 for at in found)
    minutes = [sum(minute * 60_000 < at <= (minute + 1) * 60_000 for at in found) for minute in range(10)]
    assert min(minutes) > 60
    assert max(minutes) < 140
    again = first_due_in_ms({"interval": 600}, "default/t7", NOW)
    assert again == found[7]  # by its name alone, on whatever host


def test_intervals_vary_by_five_percent_at_most() -> None:
    found = [spread(600) for _ in range(1000)]
    assert min(found) >= 570
    assert max(found) <= 630
    assert max(found) - min(found) > 30
