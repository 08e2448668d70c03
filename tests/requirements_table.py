"""Print how the requirements stand against the tests, and fail where they do not hold.

Run by `make req` as a plain script, so it needs nothing but the standard library.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HEADER = ("id", "kind", "words", "issue", "state")
KINDS = ("binding", "default")
REASONED_STATES = ("superseded", "left out")
FIRST_ISSUE, LAST_ISSUE = 2, 9

_ID = re.compile(r"R\d+\.\d+[a-z]?|RM\.\d+|T\d+")
_DEFINITION = re.compile(r"^(R\d+\.\d+[a-z]?|T\d+) |\b(RM\.\d+) ", re.MULTILINE)

Report = Mapping[str, Mapping[str, str]]
"""For each requirement id the tests that bear it: node id to outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """Where a checkout keeps what the table is made of."""

    root: Path

    @property
    def tests(self) -> Path:
        """The folder of the tests."""
        return self.root / "tests"

    @property
    def table(self) -> Path:
        """The table of all requirements."""
        return self.tests / "requirements.tsv"

    @property
    def report(self) -> Path:
        """What the last test run left behind."""
        return self.tests / ".req-report.json"

    @property
    def finished(self) -> Path:
        """The numbers of the issues that claim to be finished."""
        return self.tests / "finished_issues.txt"

    @property
    def source(self) -> Path:
        """The list of requirements itself, which lies outside the checkout if at all."""
        return self.root.parent / "shared" / "REQUIREMENTS.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One requirement: what it is, which issue covers it, how it stands."""

    id: str
    kind: str
    words: str
    issue: int
    state: str

    @property
    def seed(self) -> str:
        """The part of the list it comes from, such as `R1`, `RM` or `T`."""
        return self.id.split(".")[0] if "." in self.id else self.id.rstrip("0123456789")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What the sources of one test file say: its test functions and the ids it bears."""

    functions: frozenset[str]
    ids: frozenset[str]


def natural_key(requirement: str) -> tuple[int, str, int, str]:
    """Sort key that puts R1.2 before R1.10, and the seeds before RM and T."""
    match = re.fullmatch(r"(R\d+|RM|T)\.?(\d+)([a-z]?)", requirement)
    if match is None:
        return (3, requirement, 0, "")
    seed, number, letter = match.groups()
    rank = {"RM": 1, "T": 2}.get(seed, 0)
    return (rank, seed, int(number), letter)


def parse_table(text: str) -> tuple[list[Row], list[str]]:
    """Read the table; answers the sound rows and what is wrong with the others."""
    head, *lines = text.splitlines() or [""]
    problems = [] if tuple(head.split("\t")) == HEADER else [f"line 1: the header must be {' '.join(HEADER)}"]
    rows: dict[str, Row] = {}
    for number, line in enumerate(lines, start=2):
        fields = line.split("\t")
        found = _row_problems(fields)
        if not found and fields[0] in rows:
            found = [f"duplicate id '{fields[0]}'"]
        problems += [f"line {number}: {problem}" for problem in found]
        if not found:
            rows[fields[0]] = Row(id=fields[0], kind=fields[1], words=fields[2], issue=int(fields[3]), state=fields[4])
    return list(rows.values()), problems


def _row_problems(fields: Sequence[str]) -> list[str]:
    if len(fields) != len(HEADER):
        return [f"{len(fields)} columns instead of {len(HEADER)}"]
    name, kind, words, issue, state = fields
    checks = [
        (_ID.fullmatch(name) is not None, f"malformed id '{name}'"),
        (kind in KINDS, f"unknown kind '{kind}' (must be one of: {', '.join(KINDS)})"),
        (bool(words.strip()), f"'{name}' has no words"),
        (_is_issue(issue), f"bad issue '{issue}' (must be a number from {FIRST_ISSUE} to {LAST_ISSUE})"),
    ]
    return [problem for holds, problem in checks if not holds] + _state_problems(name, state)


def _is_issue(text: str) -> bool:
    return text.isdecimal() and FIRST_ISSUE <= int(text) <= LAST_ISSUE


def _state_problems(name: str, state: str) -> list[str]:
    word, _, reason = state.partition(":")
    if state == "test":
        return []
    if word not in REASONED_STATES:
        return [f"'{name}' has the unknown state '{state}' (must be one of: test, superseded: …, left out: …)"]
    return [] if reason.strip() else [f"'{name}' is '{word}' without a reason"]


def parse_finished(text: str) -> tuple[frozenset[int], list[str]]:
    """Read the numbers of the finished issues; answers them and the lines that are none."""
    lines = [line.strip() for line in text.splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    bad = [f"finished_issues.txt: '{line}' is not an issue" for line in wanted if not _is_issue(line)]
    return frozenset(int(line) for line in wanted if _is_issue(line)), bad


def defined_ids(text: str) -> frozenset[str]:
    """All ids that the list of requirements defines."""
    return frozenset(first or second for first, second in _DEFINITION.findall(text))


def scan_tests(checkout: Checkout) -> dict[str, Marks]:
    """Read the markers out of all test sources; keys are paths as in node ids."""
    return {
        path.relative_to(checkout.root).as_posix(): scan_source(path.read_text(encoding="utf-8"))
        for path in sorted(checkout.tests.rglob("*.py"))
    }


def scan_source(text: str) -> Marks:
    """Find the test functions of a source and the literal ids of its `req` marks."""
    nodes = list(ast.walk(ast.parse(text)))
    return Marks(
        functions=frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)),
        ids=frozenset(value for node in nodes for value in _marked_ids(node)),
    )


def _marked_ids(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and re.search(r"\bmark\.req$", ast.unparse(node.func)):
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


def live_report(report: Report, scanned: Mapping[str, Marks]) -> dict[str, dict[str, str]]:
    """The report without tests that are no longer in the sources."""
    return {
        requirement: {node: outcome for node, outcome in outcomes.items() if _exists(node, scanned)}
        for requirement, outcomes in report.items()
    }


def _exists(node: str, scanned: Mapping[str, Marks]) -> bool:
    path, _, rest = node.partition("::")
    function = rest.partition("[")[0].rpartition("::")[2]
    return path in scanned and function in scanned[path].functions


def unknown_marks(rows: Iterable[Row], scanned: Mapping[str, Marks], report: Report) -> list[str]:
    """Ids that tests bear although the table does not have them."""
    known = {row.id for row in rows}
    in_sources = {(path, name) for path, marks in scanned.items() for name in marks.ids - known}
    in_report = {(node, name) for name in report.keys() - known for node in report[name]}
    return [f"{where}: unknown requirement id '{name}'" for where, name in sorted(in_sources | in_report)]


def differences(rows: Iterable[Row], defined: frozenset[str]) -> list[str]:
    """Ids that only one of the table and the list of requirements has."""
    known = {row.id for row in rows}
    missing = [f"'{name}' of REQUIREMENTS.md is not in the table" for name in sorted(defined - known, key=natural_key)]
    extra = [f"'{name}' of the table is not in REQUIREMENTS.md" for name in sorted(known - defined, key=natural_key)]
    return missing + extra


def unproven(rows: Iterable[Row], finished: frozenset[int], report: Report) -> list[str]:
    """Binding rows of finished issues that no test proves."""
    return [
        f"'{row.id}' is binding and issue {row.issue} is finished, but no test of it ran and passed: {row.words}"
        for row in rows
        if row.kind == "binding" and row.state == "test" and row.issue in finished and not passed(report, row.id)
    ]


def ran(report: Report, requirement: str) -> int:
    """How many tests of a requirement ran, that is, were not skipped."""
    return sum(outcome != "skipped" for outcome in report.get(requirement, {}).values())


def passed(report: Report, requirement: str) -> int:
    """How many tests of a requirement passed."""
    return sum(outcome == "passed" for outcome in report.get(requirement, {}).values())


def render(rows: Sequence[Row], report: Report) -> str:
    """The whole table with its summaries, as text."""
    lines = [f"{'id':<7}{'kind':<9}{'issue':<7}{'run/passed':<12}state"]
    lines += [_render_row(row, report) for row in rows]
    lines += ["", *_summary("seed", rows, report, lambda row: row.seed)]
    lines += ["", *_summary("issue", rows, report, lambda row: str(row.issue))]
    return "\n".join(lines)


def _render_row(row: Row, report: Report) -> str:
    counts = f"{ran(report, row.id)}/{passed(report, row.id)}"
    return f"{row.id:<7}{row.kind:<9}{row.issue:<7}{counts:<12}{row.state}"


def _summary(title: str, rows: Sequence[Row], report: Report, group: Callable[[Row], str]) -> Iterator[str]:
    total, binding, proven, excused = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        for name in (group(row), "all"):
            total[name] += 1
            binding[name] += row.kind == "binding"
            proven[name] += passed(report, row.id) > 0
            excused[name] += row.state != "test"
    yield f"{title:<7}{'rows':>6}{'binding':>9}{'passed':>8}{'excused':>9}"
    for name in sorted(total, key=lambda name: (name == "all", name)):
        yield f"{name:<7}{total[name]:>6}{binding[name]:>9}{proven[name]:>8}{excused[name]:>9}"


def read_report(path: Path) -> dict[str, dict[str, str]] | None:
    """The report of the last test run, or None if there was none."""
    if not path.is_file():
        return None
    report: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return report


def main(arguments: Sequence[str], checkout: Checkout) -> int:
    """Print the table of a checkout and answer 1 if anything does not hold, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--static", action="store_true", help="check the table and the markers, not the last test run")
    static = parser.parse_args(arguments).static
    rows, problems = parse_table(checkout.table.read_text(encoding="utf-8"))
    finished, bad_lines = parse_finished(checkout.finished.read_text(encoding="utf-8"))
    scanned = scan_tests(checkout)
    stored = {} if static else read_report(checkout.report)
    report = live_report(stored or {}, scanned)
    problems += bad_lines + unknown_marks(rows, scanned, report)
    if checkout.source.is_file():
        problems += differences(rows, defined_ids(checkout.source.read_text(encoding="utf-8")))
    if stored is None:
        problems.append("no report of a test run: run `make test` first")
    elif not static:
        problems += unproven(rows, finished, report)
    print(render(rows, report))
    for problem in problems:
        print(f"error: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Checkout(root=Path(__file__).resolve().parents[1])))
