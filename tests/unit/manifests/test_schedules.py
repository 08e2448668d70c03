import sys

import pytest

from gitops_reconciler.manifests.schedules import check_cron, check_time_zone
from tests.support.trees import problems_in, resource


@pytest.mark.parametrize("expression", ["* * * * *", "*/10 * * * *", "0 3 * * 1-5", "0 0 29 2 *", "0 12 1,15 * *"])
def test_a_cron_expression_of_five_fields_is_taken(expression: str) -> None:
    check_cron(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("* * * *", "(five fields: minute hour day month weekday)"),
        ("0 0 0 * * *", "(five fields: minute hour day month weekday)"),
        ("@daily", "(five fields: minute hour day month weekday)"),
        ("60 * * * *", "'60 * * * *' is no cron expression: bad minute"),
        ("a * * * *", "'a * * * *' is no cron expression: bad minute"),
        ("0 0 31 4 *", "'0 0 31 4 *' is no cron expression: bad day-of-month"),
        ("0 0 31 2 *", "'0 0 31 2 *' is no cron expression: bad day-of-month"),
    ],
)
def test_what_is_no_cron_expression_is_refused(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match="cron expression") as caught:
        check_cron(expression)
    assert message in str(caught.value)


def test_without_the_library_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    found = problems_in(resource(more="cron: '0 3 * * *'"))
    assert found == [
        "4:7: 'cron': cannot be checked: cronsim is not installed (pip install 'gitops-reconciler[worker]')"
    ]


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"])
def test_a_time_zone_of_the_database_is_taken(name: str) -> None:
    check_time_zone(name)


@pytest.mark.parametrize(
    "name", ["", "Europe/Nowhere", "America", "../etc/passwd", "/etc/localtime", "localtime", "é", "a" * 5000]
)
def test_what_is_no_time_zone_everywhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"is no time zone \(as in Europe/Berlin, UTC\)"):
        check_time_zone(name)
