"""`gitops targets [NAME]`: the fleet as a table, or one target with all that is known of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitops_reconciler.cli.connecting import add_server_options, connect
from gitops_reconciler.cli.exits import Exit
from gitops_reconciler.cli.output import (
    SHORT_SHA,
    Cell,
    Column,
    Screen,
    ago,
    counts_of,
    note,
    one_line,
    print_body,
    status_cell,
    table,
)
from gitops_reconciler.cli.parsing import Parser, at_least_one

if TYPE_CHECKING:
    from gitops_reconciler.cli.client import Client

_EXAMPLES = """
gitops targets                                     # all, by name
gitops targets --status failed --status stalled    # what is broken
gitops targets --label env=prod --kind terraform --sort status
gitops targets web                                 # one, in detail
gitops targets -o json | jq '.items[].name'
"""
_PAGE = 500
_DEFAULT_PAGE = 100
_COLUMNS = (
    Column(title="NAME"),
    Column(title="KIND", may_go=True),
    Column(title="STATUS"),
    Column(title="REVISION", may_go=True),
    Column(title="RUN", may_go=True),
    Column(title="WHY", may_go=True),
    Column(title="MESSAGE", gives_way=True),
)


def configure(parser: Parser) -> None:
    """Say what `targets` takes."""
    parser.describe(
        "Lists the targets of the fleet, or shows one.",
        "REVISION is what was applied last, RUN how long ago the last run was, WHY what asked for it. Filters that "
        "are repeated: any of them (labels: all of them).",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="show this one, in short (web) or in full (default/web)"
    )
    filters = parser.add_argument_group("filters")
    filters.add_argument("--status", action="append", default=[], help="ready, failed, pending, stale …")
    filters.add_argument("--kind", action="append", default=[], help="terraform, ansible …")
    filters.add_argument("--pool", action="append", default=[], help="pool of workers")
    filters.add_argument("--label", action="append", default=[], metavar="NAME[=VALUE]", help="label")
    filters.add_argument("--match", metavar="TEXT", help="part of the name")
    parser.add_argument("--sort", choices=("name", "status"), default="name", help="status: the most urgent first")
    parser.add_argument(
        "--limit",
        type=at_least_one,
        metavar="N",
        help=f"at most so many (default: all; with -o json {_DEFAULT_PAGE}, one page)",
    )
    parser.add_argument("--after", default="", metavar="CURSOR", help="go on after a page: its 'next'")
    add_server_options(parser)
    parser.teach(_EXAMPLES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show one, or a list."""
    client = connect(arguments)
    if arguments.name is not None:
        return _show_one(client, arguments)
    if arguments.output == "json":
        answer = client.get("targets", _query(arguments, arguments.limit or _DEFAULT_PAGE, arguments.after))
        print_body(answer.body)
        if answer.json["next"]:
            note(f"there are more: --after {answer.json['next']}")
        return Exit.OK
    _show_list(client, arguments)
    return Exit.OK


def _query(arguments: argparse.Namespace, limit: int, after: str) -> list[tuple[str, str]]:
    names = ("status", "kind", "pool", "label")
    repeated = [(name, value) for name in names for value in getattr(arguments, name)]
    once = {"q": arguments.match, "sort": arguments.sort, "limit": str(limit), "after": after}
    return repeated + [(name, value) for name, value in once.items() if value]


def _show_list(client: Client, arguments: argparse.Namespace) -> None:
    screen = Screen.of()
    note_troubles(client)
    pages = list(_pages(client, arguments))
    items = [item for page in pages for item in page["items"]]
    if items:
        print("\n".join(target_table(items, screen)))
    total, counts = pages[0]["total"], pages[0]["counts"]
    if not sum(counts.values()):
        note("there are no targets yet (`gitops source add` registers a repository that declares some)")
    elif not items:
        note("no target matches")
    elif screen.width is not None:
        several = ", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=lambda one: -one[1]))
        shown = f"{len(items)} of {total} shown; " if len(items) < total else ""
        print(screen.paint(f"{shown}in all {several}", "dim"))


def note_troubles(client: Client) -> None:
    """Say first why nothing may move: the fleet is paused, or asks wait in a pool that nobody serves."""
    fleet = client.get("gitops/status").json
    if fleet["paused"]:
        note(
            f"the fleet is paused: {one_line(fleet['paused']['reason']) or 'no reason given'} (`gitops resume --fleet`)"
        )
    for dead in fleet["dead_pools"]:
        where = f"pool '{dead['pool']}', where {dead['waiting']} wait"
        note(f"no live worker serves {where} (`gitops explain {dead['oldest']}`)")


def _pages(client: Client, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Fetch page after page, until the end or the limit."""
    left, after = arguments.limit, arguments.after
    while True:
        page = client.get("targets", _query(arguments, min(_PAGE, left or _PAGE), after)).json
        yield page
        after = page["next"]
        left = None if left is None else left - len(page["items"])
        if not after or left == 0:
            return


def target_table(items: Sequence[Mapping[str, Any]], screen: Screen) -> list[str]:
    """Return targets of the API as the lines of a table."""
    return table(_COLUMNS, [_row(item) for item in items], screen)


def _row(item: Mapping[str, Any]) -> list[Cell]:
    last = item["last_run"]
    return [
        Cell(text=item["name"]),
        Cell(text=item["kind"]),
        status_cell(item["status"]),
        Cell(text=item["applied_revision"][:SHORT_SHA]),
        Cell(text="" if last is None else ago(last["ended_at"] or last["started_at"])),
        Cell(text="" if last is None else triggers_of(last)),
        Cell(text=f"waiting: {item['waiting_for']}" if item["waiting_for"] else item["message"]),
    ]


def triggers_of(run: Mapping[str, Any]) -> str:
    """Return what asked for a run: each trigger once."""
    return ",".join(dict.fromkeys(cause["trigger"] for cause in run["causes"]))


def _show_one(client: Client, arguments: argparse.Namespace) -> int:
    from gitops_reconciler.cli.client import path_of

    answer = client.get(path_of("targets", arguments.name))
    if arguments.output == "json":
        print_body(answer.body)
        return Exit.OK
    item = answer.json
    screen = Screen.of()
    print(screen.paint(item["name"], "bold"))
    for name, text in _facts(item, screen):
        if text:
            print(f"  {screen.paint(f'{name:<10}', 'dim')} {text}")
    return Exit.OK


def _facts(item: Mapping[str, Any], screen: Screen) -> Iterator[tuple[str, str]]:
    cell = status_cell(item["status"])
    since = f", for {ago(item['status_since'])}" if item["status_since"] else ""
    yield "status", screen.paint(cell.text, cell.style) + since
    yield "", one_line(item["message"])
    yield "waiting", one_line(item["waiting_for"])
    yield "kind", f"{item['kind']} (pool {item['pool']})"
    yield "applied", _revision(item["applied_revision"], item["applied_at"])
    if item["revision"] != item["applied_revision"]:
        yield "last tried", _revision(item["revision"], None)
    yield "commit", one_line(item["subject"])
    yield "document", f"{item['path']} of {item['repository']} ({item['ref']})"
    yield "labels", ", ".join(f"{name}={value}" for name, value in sorted(item["labels"].items()))
    if item["suspended_by"]:
        yield "suspended", f"by {item['suspended_by']}: {one_line(item['suspended_why']) or 'no reason given'}"
    yield "asks", f"{item['requested']} asked, {item['observed']} served"
    yield "due", ago(item["due_at"]) or "by push and by hand only"
    yield from _last_run(item["last_run"])


def _revision(sha: str, at: str | None) -> str:
    return f"{sha}, {ago(at)} ago" if at else sha


def _last_run(run: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    if run is None:
        yield "last run", "none yet"
        return
    took = "" if run["seconds"] is None else f" in {run['seconds']:.1f} s"
    when = f"{ago(run['ended_at'] or run['started_at'])} ago"
    yield "last run", f"{run['state']}{took}, {when} {counts_of(run['counts'])}".rstrip()
    causes = [
        f"{cause['trigger']} ({cause['actor']})" if cause["actor"] else cause["trigger"] for cause in run["causes"]
    ]
    yield "why", ", ".join(dict.fromkeys(causes))
    yield "log", f"gitops runs --log {run['run']}"
