"""The statistics of the benches."""

import json

import pytest

from tests.bench.pairs import HEADINGS, Measure, Pair, Result, interleaved, row_of, table
from tests.bench.run import main


def result(measure: Measure, goal: float, *values: tuple[float, float]) -> Result:
    pairs = [Pair(ours=ours, reference=reference) for ours, reference in values]
    return Result(name="web", measure=measure, goal=goal, pairs=pairs)


def test_the_two_sides_take_turns_and_warm_ups_are_not_counted() -> None:
    calls: list[str] = []

    def side(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    pairs = interleaved(lambda: side("A"), lambda: side("B"), 3, warm_ups=2)

    assert calls == ["A", "B"] * 5
    assert pairs == [Pair(ours=5, reference=6), Pair(ours=7, reference=8), Pair(ours=9, reference=10)]


def test_garbage_is_collected_again_after_a_side_that_broke() -> None:
    import gc

    def broken() -> float:
        assert not gc.isenabled()
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        interleaved(broken, lambda: 1.0, 1)
    assert gc.isenabled()


def test_a_ratio_is_the_median_of_the_pairs_and_not_of_the_sides() -> None:
    # The machine got twice as slow after the first pair: each pair still says one half.
    slowed = result(Measure.RATIO, 0.5, (50, 100), (25, 50), (20, 50))

    assert slowed.value == 0.5
    assert slowed.medians == {"ours": 25, "reference": 50}
    assert slowed.met


def test_one_wild_pair_does_not_move_the_result() -> None:
    assert result(Measure.RATIO, 0.5, (60, 100), (1, 100), (60, 100)).value == pytest.approx(0.6)


def test_a_rate_below_its_goal_is_missed() -> None:
    assert not result(Measure.RATIO, 0.6, (59, 100)).met


def test_added_seconds_at_the_goal_meet_it_and_above_it_do_not() -> None:
    assert result(Measure.ADDED, 0.25, (0.75, 0.5)).met
    assert not result(Measure.ADDED, 0.25, (0.875, 0.5)).met


def test_the_entry_of_the_result_file_says_all_and_is_json() -> None:
    assert json.loads(json.dumps(result(Measure.ADDED, 0.25, (0.75, 0.5)).to_json())) == {
        "name": "web",
        "added_seconds": 0.25,
        "medians": {"ours": 0.75, "reference": 0.5},
        "n": 1,
        "goal": 0.25,
        "met": True,
    }


def test_the_table_shows_units_spread_and_verdict() -> None:
    rate = row_of(result(Measure.RATIO, 0.6, (1200, 2000), (1000, 2000), (1400, 2000)))
    added = row_of(result(Measure.ADDED, 0.03, (0.0412, 0.001)))

    assert rate == ("web", "1,200/s", "2,000/s", "0.60", "0.50 … 0.70", "≥ 0.60", "3", "yes")
    assert added == ("web", "41.2 ms", "1.0 ms", "+40.2 ms", "+40.2 ms … +40.2 ms", "≤ +30.0 ms", "1", "no")


def test_the_table_has_columns_and_leaves_text_as_it_is() -> None:
    skipped = ("terraform", "skipped: no terraform, which is longer than any column")
    full = tuple(heading.upper() for heading in HEADINGS)

    first, second, third = table([full, skipped]).splitlines()

    assert first.index("ours") == second.index("OURS") == third.index("skipped") == len("terraform") + 2
    assert first.index("goal") == second.index("GOAL")


@pytest.mark.parametrize("arguments", [["nothing"], ["--pairs", "6"], ["--short", "--pairs", "0"]])
def test_names_that_are_unknown_and_too_few_pairs_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
