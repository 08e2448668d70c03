"""Command line parsing: commands are imported when they are called, and a mistyped name gets a suggestion."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from textwrap import fill
from typing import Any, NoReturn

from gitops_reconciler.cli.exits import EXPLAINED, Exit

_WIDTH = 78


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, its line in the list, and where the rest is known: `module` or `module:function`.

    The function (`configure`) is called with the command's parser when the command is.
    """

    name: str
    summary: str
    configured_by: str


class Parser(argparse.ArgumentParser):
    """An argument parser that fills itself when it is used for the first time."""

    def __init__(self, *, command: Command | None = None, examples: str = "", **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)
        self._command = command
        self._known: dict[str, Command] = {}
        if examples:
            self.teach(examples)

    def teach(self, examples: str) -> None:
        """Put examples, and what the exit codes mean, at the end of the help text."""
        lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
        self.epilog = f"examples:\n{lines}\n\n{_wrapped(f'exit codes: {EXPLAINED}')}"

    def describe(self, *paragraphs: str) -> None:
        """Put paragraphs at the beginning of the help text."""
        self.description = "\n\n".join(map(_wrapped, paragraphs))

    def add_commands(self, commands: Sequence[Command], *, title: str = "commands") -> None:
        """Add commands that are imported only when one of them is called."""
        self._known = {command.name: command for command in commands}
        group = self.add_subparsers(
            title=title, prog=self.prog, dest="command", metavar="COMMAND", required=True, parser_class=Parser
        )
        for command in commands:
            summary = command.summary
            group.add_parser(command.name, help=summary, description=_sentence(summary), command=command)

    def parse_known_args(  # type: ignore[override]  # typeshed has overloads for namespaces that we never pass
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Import the command, then parse."""
        if self._command is not None:
            command, self._command = self._command, None
            module, _, function = command.configured_by.partition(":")
            getattr(import_module(module), function or "configure")(self)
        given = sys.argv[1:] if args is None else list(args)
        if self._known:
            self._require_known(given)
        parsed, rest = super().parse_known_args(given, namespace)
        return parsed, rest

    def _require_known(self, given: Sequence[str]) -> None:
        name = given[0] if given else ""
        if not name:
            self.print_help(sys.stderr)
            self.exit(Exit.INVALID)
        if not name.startswith("-") and name not in self._known:
            self.error(f"unknown command '{name}' ({suggestion(name, list(self._known))})")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line, and where the help is."""
        self.exit(Exit.INVALID, f"{self.prog}: {message}\n(`{self.prog} --help` shows how)\n")


def _wrapped(text: str) -> str:
    return fill(text, _WIDTH, break_on_hyphens=False, break_long_words=False)


def _sentence(summary: str) -> str:
    return f"{summary[:1].upper()}{summary[1:]}."


def at_least_one(text: str) -> int:
    """Return a whole number above 0; the type of options that count something."""
    number = int(text)
    if number < 1:
        message = "must be at least 1"
        raise argparse.ArgumentTypeError(message)
    return number


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return `did you mean 'x'?`, or what there is to choose from."""
    close = get_close_matches(name, known, n=2)
    if close:
        return "did you mean " + " or ".join(f"'{word}'" for word in close) + "?"
    return f"choose from: {', '.join(known)}" if known else "there are none"
