"""The judge of the chaos campaigns, on logs written by hand: each column is 0 where it must be, and only there."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import FALLEN, LEFT_OVER, OVERLAPS, UNANSWERED, UNCONVERGED, check
from tests.chaos.faults import schedule
from tests.chaos.handovers import figures, handovers, survivals
from tests.chaos.ledger import FAULTS, ITEMS, LEFT, PUSHES, RECORDS, REQUESTS, RUNS

WEB = "default/web"
SECOND = 1_000_000_000


@dataclass
class Files:
    """The files of a campaign: one line of a run's log each tenth of a second."""

    folder: Path
    lines: list[str] = field(default_factory=list)

    def log(self, *words: str, target: str = WEB) -> None:
        """Append lines: `start a`, `beat a`, `clash a`, `stop a STATE`; the letter is the run."""
        for word in words:
            kind, run, *rest = word.split(" ")
            at = len(self.lines) * SECOND // 10
            self.lines.append(" ".join((kind, target, run, str(ord(run[0])), str(at), *rest)))
        (self.folder / RUNS).write_text("".join(line + "\n" for line in self.lines), encoding="utf-8")

    def note(self, file_name: str, /, **fields: Any) -> None:
        with (self.folder / file_name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")

    def record(self, run: str, token: int, *, generation: int = 1, started_ms: int = 0, state: str = "changed") -> None:
        fields = {"token": str(token), "generation": str(generation), "started_ms": str(started_ms)}
        self.note(RECORDS, run=run, item=WEB, state=state, ended_ms="2100", **fields)

    def request(self, *, generation: int | None = None, sent_ms: int = 0, sent_ns: int = 0, answer: str = "") -> None:
        fields = {"generation": generation, "sent_ms": sent_ms, "sent_ns": sent_ns, "answer": answer}
        self.note(REQUESTS, target=WEB, way="api", status=202, **fields)

    def fault(self, kind: str, *runs: str, number: int, begin: float, end: float | None = None) -> None:
        at = {"begin_ns": int(begin * SECOND), "end_ns": int((begin if end is None else end) * SECOND)}
        at["begin_ms"] = at["begin_ns"] // 1_000_000
        self.note(FAULTS, n=number, kind=kind, hit=["x"], runs=list(runs), **at)

    def found(self, column: str) -> list[str]:
        return check(self.folder).findings[column]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_runs_one_after_the_other_are_no_overlap(files: Files) -> None:
    files.log("start a", "beat a", "stop a 1", "start b", "beat b", "stop b 1")
    assert files.found(OVERLAPS) == []


def test_a_run_that_goes_on_after_the_next_began_is_an_overlap_once(files: Files) -> None:
    files.log("start a", "start b", "beat a", "beat b", "beat a", "stop b 1")
    assert files.found(OVERLAPS) == [f"{WEB}: run a went on after b had begun"]


def test_a_run_that_was_cut_off_ends_with_its_last_line(files: Files) -> None:
    files.log("start a", "beat a", "start b", "beat b", "stop b 1")
    assert files.found(OVERLAPS) == []


def test_a_thing_that_was_still_held_is_an_overlap_though_no_line_tells(files: Files) -> None:
    files.log("start a", "beat a", "start b", "clash b", "stop b 1")
    assert files.found(OVERLAPS) == [f"{WEB}: run b began while the thing was held"]


def test_two_targets_at_work_at_once_are_no_overlap(files: Files) -> None:
    files.log("start a")
    files.log("start b", "beat b", target="default/dns")
    files.log("beat a")
    assert files.found(OVERLAPS) == []


def test_a_long_run_that_outlives_a_whole_other_one_is_an_overlap(files: Files) -> None:
    files.log("start a", "start b", "stop b 1", "start c", "beat a", "stop c 1")
    assert len(files.found(OVERLAPS)) == 2


def test_rising_tokens_are_as_promised_and_gaps_do_not_matter(files: Files) -> None:
    files.log("start a", "stop a 1", "start b", "stop b 1")
    files.record("a", 5)
    files.record("b", 9)
    assert files.found(FALLEN) == []


@pytest.mark.parametrize("second", [5, 4])
def test_a_token_that_falls_or_stays_is_found(files: Files, second: int) -> None:
    files.log("start a", "stop a 1", "start b", "stop b 1")
    files.record("a", 5)
    files.record("b", second)
    assert files.found(FALLEN) == [f"{WEB}: token {second} of b after 5 of a"]


def test_a_run_that_the_store_never_heard_of_has_no_token_and_is_found(files: Files) -> None:
    files.log("start a", "stop a 1")
    assert files.found(FALLEN) == [f"{WEB}: run a is not known to the store, nor is its token"]


def test_an_ask_is_answered_by_a_run_that_claimed_its_generation_or_a_later_one(files: Files) -> None:
    files.log("start a", "stop a 1")
    files.record("a", 5, generation=4)
    files.request(generation=4)
    files.request(generation=3)
    assert files.found(UNANSWERED) == []


def test_an_ask_beyond_what_any_run_claimed_is_found_though_one_began_after_it(files: Files) -> None:
    files.log("start a", "stop a 1")
    files.record("a", 5, generation=4, started_ms=2000)
    files.request(generation=5, sent_ms=1000)
    assert files.found(UNANSWERED) == [f"{WEB}: asked by api at 0, generation 5"]


@pytest.mark.parametrize(("claimed_ms", "expected"), [(1000, 0), (999, 1)])
def test_an_ask_without_a_generation_needs_a_claim_that_is_not_older(
    files: Files, claimed_ms: int, expected: int
) -> None:
    files.log("start a", "stop a 1")
    files.record("a", 5, started_ms=claimed_ms)
    files.request(sent_ms=1000)
    assert len(files.found(UNANSWERED)) == expected


def test_a_run_that_claimed_and_never_came_to_its_thing_answers_nothing(files: Files) -> None:
    files.log()
    files.record("a", 5, generation=4)
    files.request(generation=4)
    assert len(files.found(UNANSWERED)) == 1


@pytest.mark.parametrize(("status", "expected"), [("stalled", 0), ("suspended", 0), ("ready", 1), ("failed", 1)])
def test_a_recorded_reason_answers_an_ask(files: Files, status: str, expected: int) -> None:
    files.note(ITEMS, item=WEB, status=status)
    files.request(generation=1)
    assert len(files.found(UNANSWERED)) == expected


def test_a_target_that_was_left_at_an_older_state_has_not_converged(files: Files) -> None:
    files.log("start a", "stop a 1/0")
    files.note(PUSHES, states={WEB: "1/0"})
    assert files.found(UNCONVERGED) == []
    files.note(PUSHES, states={WEB: "2/0"})
    assert files.found(UNCONVERGED) == [f"{WEB}: is 1/0, should be 2/0"]


def test_what_the_last_run_that_ended_made_of_it_is_what_counts(files: Files) -> None:
    files.note(PUSHES, states={WEB: "2/0"})
    files.log("start a", "start b", "stop b 2/0", "stop a 1/0")
    assert files.found(UNCONVERGED) == [f"{WEB}: is 1/0, should be 2/0"]


def test_a_target_that_was_never_worked_on_has_not_converged(files: Files) -> None:
    files.note(PUSHES, states={WEB: "0/0"})
    files.log("start a", "beat a")
    assert files.found(UNCONVERGED) == [f"{WEB}: is nothing, should be 0/0"]


def test_a_process_that_is_left_is_found(files: Files) -> None:
    assert check(files.folder).is_good
    files.note(LEFT, pid=7, name="python3", command="python3 thing.py")
    assert files.found(LEFT_OVER) == ["python3 7: python3 thing.py"]
    assert not check(files.folder).is_good


def lost_and_taken_over(files: Files) -> None:
    """Run a began at 0 s and was lost; run b began at 3 s."""
    files.log("start a", "beat a")
    files.log("start z", *["beat z"] * 27, target="default/other")
    files.log("start b", "stop b 1")
    files.record("a", 5, state="lost")
    files.record("b", 6)


def test_a_hand_over_is_measured_from_the_kill_to_the_next_run_of_the_target(files: Files) -> None:
    lost_and_taken_over(files)
    files.fault("kill supervisor+run", "a", number=1, begin=0.1)
    (sample,) = handovers(files.folder, gap_seconds=8)
    assert (sample.run, sample.is_disturbed) == ("a", False)
    assert sample.seconds == pytest.approx(2.9)
    assert sample.free_seconds == pytest.approx(2.0)


def test_the_95th_percentile_is_what_at_most_one_in_twenty_exceeds() -> None:
    spread = figures(float(number) for number in range(100, 0, -1))
    assert (spread.count, spread.p50, spread.p95, spread.longest) == (100, 50.0, 95.0, 100.0)
    assert (figures([3.0]).p95, figures([]).count) == (3.0, 0)


@pytest.mark.parametrize(
    ("kind", "begin", "end", "is_disturbed"),
    [
        ("redis kill", 1.0, 2.0, True),
        ("redis kill", -9.0, -8.5, False),
        ("redis kill", -5.0, -4.0, True),
        ("network hold", 0.5, 0.6, True),
        ("network cut", 0.5, 0.6, False),
        ("network slow", 0.5, 0.6, False),
        ("kill worker", 0.5, 0.6, False),
        ("redis freeze", 50.0, 51.0, False),
    ],
)
def test_only_an_absence_of_redis_excuses_a_slow_hand_over(
    files: Files, kind: str, begin: float, end: float, is_disturbed: bool
) -> None:
    lost_and_taken_over(files)
    files.fault("kill supervisor+run", "a", number=1, begin=0.1)
    files.fault(kind, number=2, begin=begin, end=end)
    (sample,) = handovers(files.folder, gap_seconds=8)
    assert sample.is_disturbed is is_disturbed


@pytest.mark.parametrize(("run", "is_disturbed"), [("a", True), ("b", False)])
def test_a_holder_that_was_frozen_as_well_is_an_excuse_for_its_own_run_alone(
    files: Files, run: str, is_disturbed: bool
) -> None:
    lost_and_taken_over(files)
    files.fault("kill supervisor+run", "a", number=1, begin=0.1)
    files.fault("freeze guard", run, number=2, begin=0.05, end=9)
    (sample,) = handovers(files.folder, gap_seconds=8)
    assert sample.is_disturbed is is_disturbed


@pytest.mark.parametrize(("state", "is_disturbed"), [("lost", True), ("changed", False)])
def test_a_second_loss_in_a_row_waits_for_its_backoff_and_does_not_count(
    files: Files, state: str, is_disturbed: bool
) -> None:
    files.record("y", 4, started_ms=-1, state=state)
    lost_and_taken_over(files)
    files.fault("kill supervisor+run", "a", number=1, begin=0.1)
    (sample,) = handovers(files.folder, gap_seconds=8)
    assert sample.is_disturbed is is_disturbed


def test_a_kill_that_came_after_the_end_is_no_hand_over(files: Files) -> None:
    files.log("start a", "stop a 1", "start b", "stop b 1")
    files.record("a", 5, state="changed")
    files.fault("kill supervisor+run", "a", number=1, begin=0.15)
    assert handovers(files.folder, gap_seconds=8) == []


def test_how_long_work_survived_its_supervisor_is_its_last_line_after_the_kill(files: Files) -> None:
    files.log("start a", "beat a", "beat a", "beat a")
    files.fault("kill guard+supervisor", "a", number=1, begin=0.1)
    assert survivals(files.folder) == [pytest.approx(0.2)]


def test_the_same_seed_gives_the_same_schedule_and_another_one_does_not() -> None:
    assert schedule(7, 600, 36) == schedule(7, 600, 36)
    assert schedule(7, 600, 36) != schedule(8, 600, 36)
    assert len(schedule(7, 600, 36)) > 300
