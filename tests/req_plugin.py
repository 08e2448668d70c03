"""pytest plugin: which tests prove which requirements, and how they ended.

A test bears ids by `@pytest.mark.req("R1.12", ...)`. Ids travel with the test reports, so the outcome is the same with
and without worker processes; `tests/requirements_table.py` reads what is written here.
"""

import json
import os
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from tests.requirements_table import Checkout, Report, parse_table, read_report

PROPERTY = "req"

_SEVERITY = ("passed", "skipped", "failed")


class Requirements:
    """Checks the marks of one test session and collects what became of their tests."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        rows, _ = parse_table(checkout.table.read_text(encoding="utf-8"))
        self._known = frozenset(row.id for row in rows)
        self._ids: dict[str, tuple[str, ...]] = {}
        self._outcomes: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector) -> Generator[None, object, object]:
        """Refuse to collect a test whose mark names a requirement that does not exist."""
        made = yield
        for item in made if isinstance(made, list) else [made]:
            if isinstance(item, pytest.Item):
                self._check(item, collector)
        return made

    def _check(self, item: pytest.Item, collector: pytest.Collector) -> None:
        for mark in item.iter_markers("req"):
            if not mark.args:
                raise collector.CollectError(f"{item.nodeid}: the mark 'req' names no requirement")
            for name in mark.args:
                if name not in self._known:
                    raise collector.CollectError(
                        f"{item.nodeid}: unknown requirement id {name!r} (the ids are in tests/requirements.tsv)"
                    )

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Put the ids where every report of the test carries them."""
        names = dict.fromkeys(name for mark in item.iter_markers("req") for name in mark.args)
        if names:
            item.user_properties.append((PROPERTY, " ".join(names)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of the phases of a test."""
        known = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(known, report.outcome, key=_SEVERITY.index)
        self._ids[report.nodeid] = tuple(
            name for key, names in report.user_properties if key == PROPERTY for name in str(names).split()
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report, unless nothing was meant to run or another process writes it."""
        if not session.config.option.collectonly and not hasattr(session.config, "workerinput"):
            self._write()

    def _write(self) -> None:
        target = self._checkout.report
        merged = merge(read_report(target) or {}, self._outcomes, self._ids, root=self._checkout.root)
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        draft.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        draft.replace(target)


def merge(
    stored: Report, outcomes: dict[str, str], ids: dict[str, tuple[str, ...]], *, root: Path
) -> dict[str, dict[str, str]]:
    """Replace what the report knew of the tests that ran now; forget tests whose file is gone."""
    merged: dict[str, dict[str, str]] = {}
    for name, node, outcome in _kept(stored, outcomes.keys(), root):
        merged.setdefault(name, {})[node] = outcome
    for node, outcome in outcomes.items():
        for name in ids[node]:
            merged.setdefault(name, {})[node] = outcome
    return merged


def _kept(stored: Report, replaced: Iterable[str], root: Path) -> Iterator[tuple[str, str, str]]:
    gone = frozenset(replaced)
    for name, tests in stored.items():
        for node, outcome in tests.items():
            if node not in gone and (root / node.partition("::")[0]).is_file():
                yield name, node, outcome


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and start collecting."""
    config.addinivalue_line("markers", "req(id, ...): the requirements that this test proves")
    checkout = Checkout(root=config.rootpath)
    config.pluginmanager.register(Requirements(checkout), "gitops-requirements")
