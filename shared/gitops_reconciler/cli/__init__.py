"""The command `gitops`. What a command needs is imported when it is called, so that `gitops --help` is instant."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from gitops_reconciler.cli.exits import Exit, exit_of_error
from gitops_reconciler.cli.parsing import Command, Parser
from gitops_reconciler.errors import GitopsError

_HERE = "gitops_reconciler.cli"
COMMANDS = (
    Command("up", "run the whole fleet on this machine: server, console, workers", f"{_HERE}.starting"),
    Command("demo", "see it work: a scratch fleet, git pushes, damage healed, alerts", f"{_HERE}.demo.command"),
    Command("validate", "check a tree of documents; needs no server", f"{_HERE}.validating"),
    Command("tick", "make one attempt at one target, in this process", f"{_HERE}.ticking"),
    Command("enqueue", "ask the fleet for ticks of targets", f"{_HERE}.asking"),
    Command("targets", "list the targets, or show one", f"{_HERE}.targets"),
    Command("explain", "say why a target is as it is, and what happens next", f"{_HERE}.explaining"),
    Command("suspend", "let targets, or the whole fleet, not run", f"{_HERE}.pausing:configure_suspend"),
    Command("resume", "let targets, or the paused fleet, run again", f"{_HERE}.pausing:configure_resume"),
    Command("runs", "list runs, or show the log of one", f"{_HERE}.runs"),
    Command("source", "add, list, remove or sync the repositories that declare targets", f"{_HERE}.sources"),
    Command("token", "create, list or revoke the API's bearer tokens", f"{_HERE}.tokens"),
)
_EXAMPLES = """
gitops demo                      # everything at once, in a scratch folder
gitops validate                  # is gitops/ of this repository right?
gitops tick web                  # converge one target now, without a server
gitops up                        # the fleet: push, and watch it converge
gitops targets --status failed   # what is broken
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing is ever raised out of it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no reason to fail
    try:
        code = _run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        return Exit.BROKEN_PIPE
    except Exception:
        message = "this is a bug in gitops; nothing more was done, please report these lines"
        logging.getLogger("gitops_reconciler").critical(message, exc_info=True)
        return Exit.FAILED
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
        return int(arguments.run(arguments))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else Exit.OK
    except GitopsError as error:
        from gitops_reconciler.redaction import redact_url

        print(f"gitops: {redact_url(str(error))}", file=sys.stderr)
        return exit_of_error(error)


class _Version(argparse.Action):
    """Look the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import version

        print(f"gitops-reconciler {version('gitops-reconciler')}")
        parser.exit()


def _parser() -> Parser:
    parser = Parser(
        prog="gitops",
        usage="gitops COMMAND [options]",
        description="Keeps Terraform, Ansible, Compose and other targets equal to what git says.",
        examples=_EXAMPLES,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_commands(COMMANDS)
    return parser
