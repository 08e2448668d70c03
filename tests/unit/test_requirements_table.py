"""The table of requirements fails where it should, and the plugin writes what the table reads."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.requirements_table import (
    Checkout,
    Marks,
    defined_ids,
    main,
    natural_key,
    parse_table,
    scan_source,
)
from tests.support.tools import require, summarize_missing

SOUND_ROWS = (
    "R1.1\tbinding\twalks the tree\t4\ttest",
    "R1.2\tdefault\tmissing folder is an error\t4\ttest",
    "R1.3\tbinding\told way\t4\tsuperseded: there is a new way",
    "T1\tdefault\tdry runs\t8\tleft out: nobody needs it",
)
TEST_FILE = "tests/unit/test_walk.py"
TEST_SOURCE = 'import pytest\n\n@pytest.mark.req("R1.1")\ndef test_walks() -> None: ...\n'

Run = Callable[..., tuple[int, list[str]]]
Place = Callable[..., None]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(root=tmp_path / "main")


@pytest.fixture
def place(checkout: Checkout) -> Place:
    """Writes a small sound checkout; arguments replace one part each."""

    def write(
        *,
        rows: tuple[str, ...] = SOUND_ROWS,
        finished: str = "# none\n",
        source: str = TEST_SOURCE,
        report: Mapping[str, Mapping[str, str]] | None = None,
        requirements: str | None = None,
    ) -> None:
        test = checkout.root / TEST_FILE
        test.parent.mkdir(parents=True)
        test.write_text(source)
        checkout.table.write_text("\n".join(("id\tkind\twords\tissue\tstate", *rows)) + "\n")
        checkout.finished.write_text(finished)
        if report is not None:
            checkout.report.write_text(json.dumps(report))
        if requirements is not None:
            checkout.source.parent.mkdir()
            checkout.source.write_text(requirements)

    return write


@pytest.fixture
def run(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the script; answers its exit code and the reasons that it printed."""

    def call(*arguments: str) -> tuple[int, list[str]]:
        code = main(arguments, checkout)
        lines = capsys.readouterr().out.splitlines()
        return code, [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]

    return call


def outcome(word: str, test: str = "test_walks", requirement: str = "R1.1") -> dict[str, dict[str, str]]:
    return {requirement: {f"{TEST_FILE}::{test}": word}}


def test_a_sound_checkout_passes(place: Place, run: Run) -> None:
    place(report=outcome("passed"), finished="# done:\n4\n8\n")
    assert run() == (0, [])


def test_a_missing_report_says_to_run_the_tests_first(place: Place, run: Run) -> None:
    place()
    assert run() == (1, ["no report of a test run: run `make test` first"])


def test_static_needs_no_report_and_does_not_ask_for_proof(place: Place, run: Run) -> None:
    place(finished="4\n")
    assert run("--static") == (0, [])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("R1.4\tstrict\twords\t4\ttest", "unknown kind 'strict' (must be one of: binding, default)"),
        ("R1.4\tbinding\t \t4\ttest", "'R1.4' has no words"),
        ("R1.4\tbinding\twords\t1\ttest", "bad issue '1' (must be a number from 2 to 9)"),
        ("R1.4\tbinding\twords\tfour\ttest", "bad issue 'four' (must be a number from 2 to 9)"),
        ("R1.4\tbinding\twords\t4\tsuperseded: ", "'R1.4' is 'superseded' without a reason"),
        ("R1.4\tbinding\twords\t4\tleft out", "'R1.4' is 'left out' without a reason"),
        ("R1.1\tbinding\twords\t4\ttest", "duplicate id 'R1.1'"),
        ("X1\tbinding\twords\t4\ttest", "malformed id 'X1'"),
        ("R1.4\tbinding\twords", "3 columns instead of 5"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(row: str, reason: str, place: Place, run: Run) -> None:
    place(rows=(*SOUND_ROWS, row))
    assert run("--static") == (1, [f"line 6: {reason}"])


def test_an_unknown_state_is_answered_with_the_known_ones(place: Place, run: Run) -> None:
    place(rows=(*SOUND_ROWS, "R1.4\tbinding\twords\t4\tlater: perhaps"))
    code, [reason] = run("--static")
    assert code == 1
    assert "unknown state 'later: perhaps' (must be one of: test, superseded: …, left out: …)" in reason


def test_a_wrong_header_is_refused() -> None:
    assert parse_table("id\tkind\n")[1] == ["line 1: the header must be id kind words issue state"]
    assert parse_table("")[1] == ["line 1: the header must be id kind words issue state"]


def test_a_line_of_finished_issues_that_is_no_issue_is_refused(place: Place, run: Run) -> None:
    place(finished="4\nnext\n17\n")
    assert run("--static") == (
        1,
        ["finished_issues.txt: 'next' is not an issue", "finished_issues.txt: '17' is not an issue"],
    )


@pytest.mark.parametrize("arguments", [(), ("--static",)])
def test_an_id_in_the_tests_that_the_table_does_not_have_is_named(
    arguments: tuple[str, ...], place: Place, run: Run
) -> None:
    place(source=TEST_SOURCE.replace("R1.1", "R9.9"), report={})
    assert run(*arguments) == (1, [f"{TEST_FILE}: unknown requirement id 'R9.9'"])


def test_an_id_in_the_report_alone_is_checked_too(place: Place, run: Run) -> None:
    place(report=outcome("passed", requirement="R9.9"))
    assert run() == (1, [f"{TEST_FILE}::test_walks: unknown requirement id 'R9.9'"])


def test_table_and_requirements_must_have_the_same_ids(place: Place, run: Run) -> None:
    place(requirements="R1.1 [doc] a\nR1.2 [repo] b\nR1.10 [doc] c\nRM.1 one RM.2 two\nT1 d\n")
    assert run("--static") == (
        1,
        [
            "'R1.10' of REQUIREMENTS.md is not in the table",
            "'RM.1' of REQUIREMENTS.md is not in the table",
            "'RM.2' of REQUIREMENTS.md is not in the table",
            "'R1.3' of the table is not in REQUIREMENTS.md",
        ],
    )


@pytest.mark.parametrize("report", [{}, outcome("failed"), outcome("skipped")])
def test_a_binding_row_of_a_finished_issue_needs_a_test_that_passed(
    report: Mapping[str, Mapping[str, str]], place: Place, run: Run
) -> None:
    place(report=report, finished="4\n")
    assert run() == (
        1,
        ["'R1.1' is binding and issue 4 is finished, but no test of it ran and passed: walks the tree"],
    )


def test_a_binding_row_of_an_open_issue_needs_nothing(place: Place, run: Run) -> None:
    place(report={}, finished="8\n")
    assert run() == (0, [])


@pytest.mark.parametrize("gone", [f"{TEST_FILE}::test_renamed", "tests/unit/test_deleted.py::test_walks"])
def test_a_pass_of_a_test_that_is_gone_proves_nothing(gone: str, place: Place, run: Run) -> None:
    place(report={"R1.1": {gone: "passed"}}, finished="4\n")
    code, [reason] = run()
    assert code == 1
    assert reason.startswith("'R1.1' is binding")


def test_one_case_of_a_parametrised_test_in_a_class_is_proof_enough(place: Place, run: Run) -> None:
    source = "class TestTree:\n    def test_walks(self) -> None: ...\n"
    node = f"{TEST_FILE}::TestTree::test_walks"
    place(source=source, report={"R1.1": {f"{node}[a::b]": "passed", f"{node}[c]": "skipped"}}, finished="4\n")
    assert run() == (0, [])


def test_the_table_shows_counts_per_row_seed_and_issue(
    place: Place, checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    place(report=outcome("passed"))
    assert main([], checkout) == 0
    cells = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["R1.1", "binding", "4", "1/1", "test"] in cells
    assert ["R1.2", "default", "4", "0/0", "test"] in cells
    assert ["R1", "3", "2", "1", "1"] in cells
    assert ["8", "1", "0", "0", "1"] in cells
    assert cells.count(["all", "4", "2", "1", "2"]) == 2


def test_marks_are_found_wherever_a_source_may_put_them() -> None:
    source = """
import pytest
from pytest import mark
pytestmark = [pytest.mark.req("R1.1")]
@mark.req("R1.2", "R1.3")
async def test_a() -> None: ...
@pytest.mark.req("R1.4")
class TestB:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("R1.5"))])
    def test_c(self, x: int) -> None: ...
"""
    assert scan_source(source) == Marks(
        functions=frozenset({"test_a", "test_c"}), ids=frozenset({"R1.1", "R1.2", "R1.3", "R1.4", "R1.5"})
    )


def test_ids_sort_as_people_count() -> None:
    ordered = ["R0.30", "R1.2", "R1.10", "R2.7", "R2.7a", "R2.7b", "R2.8", "RM.9", "RM.10", "T3", "T20"]
    assert sorted(set(ordered), key=natural_key) == ordered


def test_mentions_in_prose_define_nothing() -> None:
    assert defined_ids("R0.35 (destroying) is defined\nsee R1.5's aliases; R4.12\nR4.12\u2013R4.16 apply\n") == {
        "R0.35"
    }


def test_the_table_of_this_checkout_is_sound_and_sorted() -> None:
    text = Checkout(root=Path(__file__).parents[2]).table.read_text(encoding="utf-8")
    rows, problems = parse_table(text)
    assert problems == []
    ids = [row.id for row in rows]
    assert ids == sorted(ids, key=natural_key)
    assert len(ids) == len(text.splitlines()) - 1
    assert [row.id for row in rows if len(row.words.split()) > 10] == []


@pytest.fixture(autouse=True)
def _without_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def write_inner(pytester: pytest.Pytester, body: str, name: str = "test_inner.py") -> None:
    folder = pytester.path / "tests"
    folder.mkdir(exist_ok=True)
    (folder / "requirements.tsv").write_text("\n".join(("id\tkind\twords\tissue\tstate", *SOUND_ROWS)))
    (folder / name).write_text(f"import pytest\n{body}\n")


def run_inner(pytester: pytest.Pytester, *arguments: str) -> tuple[pytest.RunResult, object]:
    """Runs pytest with the plugin in a checkout of its own; answers the report that it left, if any."""
    options = ("-p", "tests.req_plugin", "--import-mode=importlib", "--strict-markers")
    result = pytester.runpytest_inprocess(*options, f"--rootdir={pytester.path}", *arguments)
    path = pytester.path / "tests" / ".req-report.json"
    return result, json.loads(path.read_text()) if path.exists() else None


def test_the_plugin_writes_the_worst_outcome_of_each_marked_test(pytester: pytest.Pytester) -> None:
    write_inner(
        pytester,
        """
@pytest.fixture
def breaks_late():
    yield
    raise RuntimeError

@pytest.mark.req("R1.1", "R1.2")
def test_good(): ...
@pytest.mark.req("R1.1")
def test_bad(): assert False
@pytest.mark.req("R1.1")
def test_skipped(): pytest.skip("no tool")
@pytest.mark.req("R1.1")
def test_late(breaks_late): ...
def test_unmarked(): ...
""",
    )
    _, report = run_inner(pytester)
    prefix = "tests/test_inner.py::test_"
    assert report == {
        "R1.1": {
            f"{prefix}good": "passed",
            f"{prefix}bad": "failed",
            f"{prefix}skipped": "skipped",
            f"{prefix}late": "failed",
        },
        "R1.2": {f"{prefix}good": "passed"},
    }


def test_the_plugin_keeps_what_did_not_run_and_forgets_what_is_gone(pytester: pytest.Pytester) -> None:
    marked = '@pytest.mark.req("R1.1")\ndef test_it(): ...'
    for name in ("test_kept.py", "test_gone.py", "test_changed.py"):
        write_inner(pytester, marked, name)
    run_inner(pytester)
    (pytester.path / "tests" / "test_gone.py").unlink()
    write_inner(pytester, marked.replace("R1.1", "R1.2"), "test_changed.py")
    _, report = run_inner(pytester, "tests/test_changed.py")
    assert report == {
        "R1.1": {"tests/test_kept.py::test_it": "passed"},
        "R1.2": {"tests/test_changed.py::test_it": "passed"},
    }


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ('"R1.1", "R9.9"', "*::test_it: unknown requirement id 'R9.9' (the ids are in tests/requirements.tsv)"),
        ("", "*::test_it: the mark 'req' names no requirement"),
    ],
)
def test_the_plugin_refuses_to_collect_a_wrong_mark(mark: str, message: str, pytester: pytest.Pytester) -> None:
    write_inner(pytester, f"@pytest.mark.req({mark})\ndef test_it(): ...")
    result, _ = run_inner(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_a_wrong_mark_on_one_case_of_a_parametrised_test_is_found_too(pytester: pytest.Pytester) -> None:
    case = 'pytest.param(2, marks=pytest.mark.req("R9.9"))'
    write_inner(pytester, f"@pytest.mark.parametrize('x', [1, {case}])\ndef test_it(x): ...")
    result, _ = run_inner(pytester)
    result.stdout.fnmatch_lines(["*unknown requirement id 'R9.9'*"])


def test_collecting_alone_writes_no_report(pytester: pytest.Pytester) -> None:
    write_inner(pytester, "def test_it(): ...")
    assert run_inner(pytester, "--collect-only")[1] is None


@pytest.mark.parametrize(("ci", "ends"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_tool_skips_on_a_laptop_and_fails_in_ci(
    ci: str, ends: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(ends, match="needs no-such-tool, which is not here; to install it: apt install it"):
        require("no-such-tool", "apt install it")


def test_the_end_of_a_run_lists_each_missing_tool_once() -> None:
    reasons = ["Skipped: needs tofu, which is not here; to install it: see docs", "Skipped: slow"]
    reports = [
        pytest.TestReport("node", ("a.py", 1, "x"), {}, "skipped", ("a.py", 1, reason), "call")
        for reason in (*reasons, reasons[0])
    ]
    assert summarize_missing(reports) == ["tofu: 2 skipped; to install it: see docs"]
