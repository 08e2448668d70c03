"""`gitops runs [NAME]`: what ran, why, and how it ended; and the log of one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gitops_reconciler.cli.connecting import add_server_options, connect
from gitops_reconciler.cli.exits import Exit, RefusedError
from gitops_reconciler.cli.output import (
    SHORT_SHA,
    Cell,
    Column,
    Screen,
    ago,
    counts_of,
    note,
    print_body,
    status_cell,
    table,
)
from gitops_reconciler.cli.parsing import Parser, at_least_one
from gitops_reconciler.cli.targets import triggers_of

if TYPE_CHECKING:
    from gitops_reconciler.cli.client import Client

_EXAMPLES = """
gitops runs                          # the latest of all
gitops runs web                      # of one target
gitops runs --log 3f2a91c0d4e5       # what the tools said (the id may be cut)
gitops runs source:default           # syncs of a source
"""
_ID_LENGTH = 32
_SHORT_ID = 12
_SEARCHED = 500
_COLUMNS = (
    Column(title="RUN"),
    Column(title="TARGET"),
    Column(title="STATE"),
    Column(title="STARTED"),
    Column(title="TOOK", may_go=True),
    Column(title="WHY"),
    Column(title="REVISION", may_go=True),
    Column(title="CHANGES", may_go=True),
    Column(title="MESSAGE", gives_way=True),
)
_TARGET_COLUMN = 1


def configure(parser: Parser) -> None:
    """Say what `runs` takes."""
    parser.describe("Lists the latest runs of the fleet or of one target, newest first; or shows the log of one run.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="only runs of this target (or source:NAME)")
    parser.add_argument("--log", metavar="RUN", help="print the log of this run; the beginning of its id will do")
    parser.add_argument(
        "--limit", type=at_least_one, default=20, metavar="N", help="at most so many (default: %(default)s)"
    )
    add_server_options(parser)
    parser.teach(_EXAMPLES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List, or show a log."""
    client = connect(arguments)
    if arguments.log is not None:
        return _show_log(client, arguments)
    answer = client.get("runs", _query(arguments.name, arguments.limit))
    if arguments.output == "json":
        print_body(answer.body)
        return Exit.OK
    items = answer.json["items"]
    if not items:
        note("there are no runs yet")
        return Exit.OK
    columns, rows = list(_COLUMNS), [_row(item) for item in items]
    if arguments.name is not None:
        for row in (columns, *rows):
            del row[_TARGET_COLUMN]  # type: ignore[attr-defined]  # lists of two types
    print("\n".join(table(columns, rows, Screen.of())))
    return Exit.OK


def _query(name: str | None, limit: int) -> list[tuple[str, str]]:
    return [*([("target", name)] if name is not None else []), ("limit", str(limit))]


def _row(item: Mapping[str, Any]) -> list[Cell]:
    return [
        Cell(text=item["run"][:_SHORT_ID]),
        Cell(text=item["target"]),
        status_cell(item["state"]),
        Cell(text=f"{ago(item['started_at'])} ago"),
        Cell(text="" if item["seconds"] is None else f"{item['seconds']:.1f}s"),
        Cell(text=triggers_of(item)),
        Cell(text=item["revision"][:SHORT_SHA]),
        Cell(text=counts_of(item["counts"])),
        Cell(text=item["message"]),
    ]


def _show_log(client: Client, arguments: argparse.Namespace) -> int:
    from gitops_reconciler.cli.client import path_of

    answer = client.get(path_of("runs", _full_id(client, arguments.name, arguments.log.lower())))
    if arguments.output == "json":
        print_body(answer.body)
        return Exit.OK
    log = answer.json["log"]
    sys.stdout.write(log if log.endswith("\n") or not log else f"{log}\n")
    if not log:
        note(f"run {answer.json['run']} ({answer.json['state']}) has no log here")
    return Exit.OK


def _full_id(client: Client, name: str | None, given: str) -> str:
    """Return the id that was given, or the one run of the latest whose id begins so."""
    if len(given) == _ID_LENGTH:
        return given
    items = client.get("runs", _query(name, _SEARCHED)).json["items"]
    found = [item["run"] for item in items if item["run"].startswith(given)]
    if len(found) != 1:
        why = f"{len(found)} of the latest runs begin so" if found else "none of the latest runs begins so"
        message = f"unknown run '{given}' ({why}; `gitops runs` lists them)"
        raise RefusedError(message)
    return str(found[0])
