"""`gitops enqueue NAME…`: asks the fleet for ticks, and may wait for their ends; also what other commands wait with."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gitops_reconciler.cli.connecting import add_server_options, connect
from gitops_reconciler.cli.exits import Exit, RefusedError
from gitops_reconciler.cli.output import SHORT_SHA, Screen, counts_of, note, one_line, print_body, status_cell
from gitops_reconciler.cli.parsing import Parser

if TYPE_CHECKING:
    from gitops_reconciler.cli.client import Answer, Client

_EXAMPLES = """
gitops enqueue web                 # ask, and come back at once
gitops enqueue web dns --wait 120  # wait for both to end; exit 1 if one fails
gitops enqueue web -o json         # {"target": …, "generation": …, "answer": …}
"""
_POLL_SECONDS = 0.2
_ENDED = ("no_change", "changed", "failed", "skipped", "aborted", "lost", "unreachable")
_FAILURES = ("failed", "aborted", "lost", "unreachable")
_NOT_RUN = {
    "suspended": "runs when it is resumed",
    "stale": "its document left the tree; runs when it is back",
    "destroyed": "it was destroyed as wished",
}


def configure(parser: Parser) -> None:
    """Say what `enqueue` takes."""
    parser.describe(
        "Asks the fleet for a tick of each target. Asks during a run cause exactly one more run; what is asked for "
        "twice before it runs, runs once."
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="targets, in short (web) or in full (default/web)")
    parser.add_argument(
        "--wait", type=seconds, metavar="SECONDS", help="wait so long for the runs to end, and print how they did"
    )
    add_server_options(parser)
    parser.teach(_EXAMPLES)
    parser.set_defaults(run=run)


def seconds(text: str) -> float:
    """Return a positive number of seconds."""
    number = float(text)
    if not 0 < number <= 7 * 86400:
        message = "must be a positive number of seconds"
        raise argparse.ArgumentTypeError(message)
    return number


def run(arguments: argparse.Namespace) -> int:
    """Ask for all, then wait for all; an unknown name does not keep the others from being asked for."""
    client = connect(arguments)
    code, asks = Exit.OK, []
    for name in arguments.names:
        try:
            asks.append(client.post(tick_path(name)))
        except RefusedError as error:
            note(str(error))
            code = Exit.INVALID
    if arguments.wait is None:
        for ask in asks:
            _show(ask, arguments.output)
        return code
    until = time.monotonic() + arguments.wait
    ends = [wait_for_end(client, ask.json, until=until, output=arguments.output) for ask in asks]
    return max([code, *ends])


def tick_path(name: str) -> str:
    """Return where a tick of a target, or of a source item, is asked for."""
    from gitops_reconciler.cli.client import path_of

    return path_of("targets", name, "tick")


def _show(ask: Answer, output: str) -> None:
    if output == "json":
        print_body(ask.body)
        return
    said = ask.json
    print(f"{said['target']} {answer_in_words(said)}")


def answer_in_words(said: Mapping[str, Any]) -> str:
    """Return what became of an ask: `queued (generation 3)`."""
    more = f": {_NOT_RUN[said['answer']]}" if said["answer"] in _NOT_RUN else ""
    return f"{said['answer']} (generation {said['generation']}){more}"


def wait_for_end(client: Client, ask: Mapping[str, Any], *, until: float, output: str) -> Exit:
    """Wait until a run that serves the ask has ended, print how, and return what that means for the exit code.

    `until` is a moment of the monotonic clock.
    """
    name = ask["target"]
    if ask["answer"] in _NOT_RUN:
        note(f"{name} {answer_in_words(ask)}")
        return Exit.OK
    from gitops_reconciler.cli.client import path_of

    while (answer := client.get(path_of("targets", name))).json["observed"] < ask["generation"]:
        if time.monotonic() >= until:
            note(f"{name} has not ended yet (status {answer.json['status']}); the ask stands (`gitops explain {name}`)")
            return Exit.FAILED
        time.sleep(_POLL_SECONDS)
    runs = client.get("runs", [("target", name), ("limit", "10")]).json["items"]
    served = [run for run in runs if run["generation"] >= ask["generation"] and run["state"] in _ENDED]
    if output == "json":
        print_body(answer.body)
    elif served:
        print(run_in_words(served[-1]))
    sys.stdout.flush()
    return Exit.FAILED if served and served[-1]["state"] in _FAILURES else Exit.OK


def run_in_words(run: Mapping[str, Any]) -> str:
    """Return how a run ended, on one line."""
    state = Screen.of().paint(run["state"], status_cell(run["state"]).style)
    at = f"at {run['revision'][:SHORT_SHA]}" if run["revision"] else ""
    parts = (f"{run['target']} {state}", counts_of(run["counts"]), one_line(run["message"]), at)
    return "  ".join(part for part in parts if part)
