"""`gitops explain NAME`: in plain sentences why a target is as it is and what happens next."""

from __future__ import annotations

import argparse
from textwrap import wrap

from gitops_reconciler.cli.connecting import add_server_options, connect
from gitops_reconciler.cli.exits import Exit
from gitops_reconciler.cli.output import Screen, one_line, print_body
from gitops_reconciler.cli.parsing import Parser

_WIDTH = 100
_EXAMPLES = """
gitops explain web                    # why is it as it is, what comes next?
gitops explain edge/web -o json | jq -r .summary
"""


def configure(parser: Parser) -> None:
    """Say what `explain` takes."""
    parser.describe(
        "Says why a target is as it is and what happens next. The first line is what weighs most: what it waits for, "
        "or how it stands. The others say what else bears on it.",
        "Among them: asks and in which pool they wait, and whether a live worker serves it; the run that goes on, and "
        "until when its lease lasts; early ends and when it is tried again; at which revision it stalled and what "
        "frees it; who suspended it and why; a paused fleet; when it is due.",
    )
    parser.add_argument("name", metavar="NAME", help="a target, in short (web) or in full (default/web)")
    add_server_options(parser)
    parser.teach(_EXAMPLES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the summary, then a line for each fact."""
    from gitops_reconciler.cli.client import path_of

    answer = connect(arguments).get(path_of("targets", arguments.name, "explain"))
    if arguments.output == "json":
        print_body(answer.body)
        return Exit.OK
    said, screen = answer.json, Screen.of()
    print(screen.paint(said["name"], "bold"))
    for index, fact in enumerate([said["summary"], *said["facts"]]):
        print("\n".join(_lines(one_line(fact), screen, is_first=index == 0)))
    return Exit.OK


def _lines(text: str, screen: Screen, *, is_first: bool) -> list[str]:
    mark, rest = ("  ", "  ") if is_first else ("  - ", "    ")
    width = min(screen.width, _WIDTH) if screen.width else 0
    if width <= len(rest):  # no terminal: who reads it breaks the lines
        return [mark + text]
    return wrap(
        text, width, initial_indent=mark, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
