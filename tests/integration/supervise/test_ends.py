"""How supervised runs end by themselves: results, logs, stragglers, stores that do not hear."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.supervise.procfs import Identity
from tests.support.supervise_runs import MARGIN, Start, is_locked, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")


@pytest.mark.req("R0.60")
def test_a_run_gets_an_empty_stdin_its_log_its_mark_and_the_lock_and_its_result_is_completed(start: Start) -> None:
    run = start("say")

    assert run.answer()

    assert run.end["result"] == {
        "stdin": "/dev/null",
        "mark": run.order.run,
        "environ": 1,
        "sigint": True,
        "blocked": [],
        "lock": run.order.lock,
        "leads_group": True,
    }
    assert (run.end["exit"], run.end["interrupted"], run.end["failure"]) == (0, "", "")
    assert sorted(run.log.splitlines()) == ["from the body", "from the tool", "on stderr"]
    assert not Path(run.order.leftover).exists()
    assert not is_locked(run)


def test_an_exception_in_the_body_ends_without_a_result_and_with_a_traceback_in_the_log(start: Start) -> None:
    run = start("raise")

    assert run.answer()

    assert (run.end["result"], run.end["exit"]) == (None, 1)
    assert run.end["failure"] == "ValueError: the body is broken"
    assert "Traceback" in run.log


@pytest.mark.parametrize(
    ("body", "payload", "exit_code", "result"),
    [
        ("half a line, then SIGKILL", {}, -signal.SIGKILL, None),
        ("no newline", {}, 0, None),
        ("exit 7", {}, 7, None),
        ("two lines", {}, 0, None),
        ("no object", {}, 0, None),
        ("big", {"bytes": 2_000_000}, 1, None),
        ("big", {"bytes": 500_000}, 0, {"big": "y" * 500_000}),
        ("fork keeps the pipe", {}, 0, {"ok": True}),
    ],
)
def test_a_result_is_one_whole_line_with_one_object_within_the_limit(
    start: Start, body: str, payload: dict[str, Any], exit_code: int, result: object
) -> None:
    run = start(body, payload=payload)

    assert run.answer()

    assert (run.end["exit"], run.end["result"]) == (exit_code, result)


def test_what_outlives_a_good_end_is_ended_before_the_run_counts_as_over(start: Start) -> None:
    stubborn = ["sh", "-c", "trap '' TERM INT; sleep 600 & wait; sleep 600"]
    run = start("stragglers", payload={"stragglers": [stubborn, ["setsid", "sleep", "600"]]})

    assert run.answer()

    assert run.end["exit"] == 0
    assert [pid for pid in run.end["result"]["pids"] if Identity.of(pid).is_alive] == []


def test_an_end_that_the_store_did_not_hear_is_offered_until_it_does(start: Start) -> None:
    run = start("sleep", payload={"seconds": 0}, answers={"complete": "away"})
    until(lambda: run.has("offers")() and len((run.folder / "offers").read_text()) > 1, 5, "the end was offered twice")
    assert not is_locked(run)

    (run.folder / "complete-answer").unlink()

    assert run.answer()
    assert run.end["result"] == {"slept": 0}


def test_a_store_that_stays_away_is_given_up_once_the_lease_is_over(start: Start) -> None:
    run = start(
        "sleep",
        payload={"seconds": 0},
        ttl_seconds=1.6,
        grace_seconds=0.2,
        patience_seconds=0.5,
        answers={"complete": "away"},
    )

    assert run.answer(1.6 + MARGIN)

    assert not run.has("end")()
    assert "will count as lost" in run.log


def test_a_lease_with_a_bug_does_not_kill_the_supervisor_and_is_given_up_after_a_few_tries(start: Start) -> None:
    run = start("sleep", payload={"seconds": 0}, answers={"complete": "broken"})

    assert run.answer()

    assert (run.folder / "offers").read_text() == "!!!!"
    assert "ValueError: the lease has a bug" in run.log
    assert "will count as lost" in run.log
    assert run.running.failure == ""


def test_an_end_that_breaks_the_lease_is_at_last_offered_without_its_result(start: Start) -> None:
    run = start("sleep", payload={"seconds": 0}, answers={"complete": "broken by a result"})

    assert run.answer()

    assert (run.end["result"], run.end["exit"]) == (None, 0)
    assert run.end["failure"] == "its result could not be written, see the log"


def test_a_result_that_is_nested_without_end_is_none(start: Start) -> None:
    run = start("nested")

    assert run.answer()

    assert run.end["result"] is None
    assert "are no result" in run.end["failure"]


def test_what_a_run_process_died_of_shows_no_login_and_no_control_characters(start: Start) -> None:
    run = start("raise", payload={"text": "no route to https://ann:hunter22@git.example/x\x1b]0;\x07"})

    assert run.answer()

    assert run.end["failure"] == "ValueError: no route to https://***@git.example/x]0;"
    assert "no route to https://***@git.example/x" in run.log
    assert "hunter22" not in run.log
    assert "\x07" not in run.log


def test_a_run_whose_lock_can_not_be_made_says_so(start: Start, tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file where the folder should be")
    run = start("sleep", payload={"seconds": 0})

    assert not run.answer()

    assert not run.running.is_busy
    assert "FileExistsError" in run.running.failure
