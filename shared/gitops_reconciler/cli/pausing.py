"""`gitops suspend` and `gitops resume`: of some targets, or of the whole fleet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gitops_reconciler.cli.connecting import add_server_options, connect
from gitops_reconciler.cli.exits import Exit, RefusedError
from gitops_reconciler.cli.output import ago, note, one_line, print_body
from gitops_reconciler.cli.parsing import Parser

if TYPE_CHECKING:
    from gitops_reconciler.cli.client import Client

_SUSPEND_EXAMPLES = """
gitops suspend web --reason 'migration until friday'
gitops suspend --fleet --reason 'the cloud account is moved'
"""
_RESUME_EXAMPLES = """
gitops resume web
gitops resume --fleet                 # after a pause, or after the store was emptied
gitops resume --fleet --reason 'suspensions are back'
"""


def configure_suspend(parser: Parser) -> None:
    """Say what `suspend` takes."""
    parser.describe(
        "Suspends targets, or pauses the whole fleet: what is asked for meanwhile is remembered, and runs once it is "
        "resumed. A run under way ends by itself.",
        "A paused fleet still reads its sources, so that changes can be looked at before they run. Everybody who gets "
        "alerts is told of it.",
    )
    _add(parser, "suspend", "pause the whole fleet")
    parser.teach(_SUSPEND_EXAMPLES)
    parser.set_defaults(run=run_suspend)


def configure_resume(parser: Parser) -> None:
    """Say what `resume` takes."""
    parser.describe(
        "Lets suspended targets run again, and asks for them; or lets the paused fleet go on.",
        "A fleet pauses itself when a host finds that the store was emptied or is another one: suspensions, sources, "
        "tokens and history may be gone. `gitops targets` shows what came back from the sources; suspend what must not "
        "run, then resume. Every target is then asked for once.",
    )
    _add(parser, "resume", "resume the whole fleet")
    parser.teach(_RESUME_EXAMPLES)
    parser.set_defaults(run=run_resume)


def _add(parser: Parser, verb: str, fleet: str) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"targets to {verb}, in short (web) or in full")
    parser.add_argument("--fleet", action="store_true", help=fleet)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; shown to everybody who wonders")
    add_server_options(parser)


def run_suspend(arguments: argparse.Namespace) -> int:
    """Suspend targets, or the fleet."""
    if not _wants_fleet(arguments):
        return _each(arguments, "suspend", "is suspended")
    said = _post(connect(arguments), arguments, "gitops/pause")
    if arguments.output == "table":
        paused = said["paused"] or {}
        if said["changed"]:
            print("the fleet is paused: no target runs until `gitops resume --fleet`")
        else:
            why = one_line(paused.get("reason", "")) or "no reason given"
            note(f"it was paused before, {ago(paused.get('since'))} ago: {why}")
    return Exit.OK


def run_resume(arguments: argparse.Namespace) -> int:
    """Resume targets, or the fleet."""
    if not _wants_fleet(arguments):
        return _each(arguments, "resume", "is resumed and asked for")
    said = _post(connect(arguments), arguments, "gitops/resume")
    if arguments.output == "table":
        if said["changed"]:
            print("the fleet is resumed: what was asked for meanwhile runs now")
        else:
            note("the fleet was not paused")
    return Exit.OK


def _wants_fleet(arguments: argparse.Namespace) -> bool:
    if bool(arguments.names) == arguments.fleet:
        raise RefusedError("say which: NAME… or --fleet (and not both)")
    return bool(arguments.fleet)


def _each(arguments: argparse.Namespace, verb: str, done: str) -> Exit:
    """Do it to each target; an unknown name does not keep it from the others."""
    from gitops_reconciler.cli.client import path_of

    client, code = connect(arguments), Exit.OK
    for name in arguments.names:
        try:
            said = _post(client, arguments, path_of("targets", name, verb))
        except RefusedError as error:
            note(str(error))
            code = Exit.INVALID
        else:
            if arguments.output == "table":
                print(f"{said['name']} {done}")
    return code


def _post(client: Client, arguments: argparse.Namespace, path: str) -> Any:
    answer = client.post(path, {"reason": arguments.reason})
    if arguments.output == "json":
        print_body(answer.body)
    return answer.json
