"""`gitops token`: the API's bearer tokens, written to the store directly, so that the first one can be made."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gitops_reconciler.cli.exits import Exit, RefusedError
from gitops_reconciler.cli.output import Cell, Column, Screen, ago, note, table
from gitops_reconciler.cli.parsing import Command, Parser, suggestion

if TYPE_CHECKING:
    from gitops_reconciler.store.tokens import Tokens

_HERE = "gitops_reconciler.cli.tokens"
_COMMANDS = (
    Command("create", "make a token and print it: the only time that it can be seen", f"{_HERE}:configure_create"),
    Command("list", "list the tokens", f"{_HERE}:configure_list"),
    Command("revoke", "make a token worthless", f"{_HERE}:configure_revoke"),
)
_EXAMPLES = """
gitops token create ci --role operator   # prints the token, once
gitops token list
gitops token revoke ci
"""
_ROLES = ("viewer", "operator", "admin")


def configure(parser: Parser) -> None:
    """Say what `token` takes."""
    parser.describe(
        "Creates, lists and revokes the API's bearer tokens. Works on the store (GITOPS_REDIS_URL, else that of the "
        "running `gitops up`), not through the API.",
        "Without any token the API serves this machine only; once there is one, every caller needs one.",
    )
    parser.teach(_EXAMPLES)
    parser.add_commands(_COMMANDS)


def configure_create(parser: Parser) -> None:
    """Say what `token create` takes."""
    parser.add_argument("name", metavar="NAME", help="who or what uses it")
    parser.add_argument("--role", choices=_ROLES, default="viewer", help="what it allows (default: %(default)s)")
    parser.add_argument("--file", type=Path, metavar="FILE", help="write it to a new file (mode 0600), do not print it")
    parser.teach("gitops token create ci --role operator\ngitops token create me --role admin --file ~/.gitops-token")
    parser.set_defaults(run=run_create)


def configure_list(parser: Parser) -> None:
    """Say what `token list` takes."""
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: %(default)s")
    parser.teach("gitops token list\ngitops token list -o json")
    parser.set_defaults(run=run_list)


def configure_revoke(parser: Parser) -> None:
    """Say what `token revoke` takes."""
    parser.add_argument("name", metavar="NAME", help="name or id of the token")
    parser.teach("gitops token revoke ci")
    parser.set_defaults(run=run_revoke)


@contextmanager
def _tokens() -> Iterator[Tokens]:
    from gitops_reconciler.cli.stores import reaching_store, with_store
    from gitops_reconciler.settings import load_settings
    from gitops_reconciler.store.tokens import Tokens
    from gitops_reconciler.wiring import redis_client

    with reaching_store(), redis_client(with_store(load_settings())) as client:
        yield Tokens(client)


def run_create(arguments: argparse.Namespace) -> int:
    """Make a token; it goes to stdout or a file, what there is to say to stderr."""
    from gitops_reconciler.store.tokens import Role

    with _tokens() as tokens, _destination(arguments.file) as file:
        is_first = not tokens.exist()
        try:
            plain = tokens.create(arguments.name, Role.parse(arguments.role))
        except ValueError as error:
            raise RefusedError(str(error)) from error
        print(plain, file=file)
    where = f"written to {arguments.file}" if arguments.file else "shown this once"
    note(f"token '{arguments.name}' ({arguments.role}) {where}")
    if is_first:
        note("it is the first one: from now on every call of the API needs a token")
    return Exit.OK


@contextmanager
def _destination(path: Path | None) -> Iterator[TextIO]:
    """Give stdout, or a new private file that is gone again if nothing came of it."""
    if path is None:
        yield sys.stdout
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"--file {path}: {os.strerror(error.errno or 0).lower()}"
        raise RefusedError(message) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def run_list(arguments: argparse.Namespace) -> int:
    """List the tokens; their secrets are not known."""
    with _tokens() as tokens:
        found = tokens.list()
    if arguments.output == "json":
        items = [
            {
                "id": token.id,
                "name": token.name,
                "role": token.role.label,
                "created_at": token.created_at.isoformat(),
            }
            for token in found
        ]
        print(json.dumps({"items": items, "next": None}, indent=2))
        return Exit.OK
    columns = [Column(title=title) for title in ("NAME", "ROLE", "ID", "CREATED")]
    rows = [
        [
            Cell(text=token.name),
            Cell(text=token.role.label),
            Cell(text=token.id),
            Cell(text=f"{ago(token.created_at.isoformat())} ago"),
        ]
        for token in found
    ]
    if not rows:
        note("there are no tokens: the API serves this machine only (`gitops token create NAME` makes one)")
        return Exit.OK
    print("\n".join(table(columns, rows, Screen.of())))
    return Exit.OK


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke a token by name or id."""
    with _tokens() as tokens:
        if tokens.revoke(arguments.name):
            print(f"token '{arguments.name}' is revoked")
            if not tokens.exist():
                note("it was the last one: from now on the API serves this machine without a token, and no other")
            return Exit.OK
        names = [token.name for token in tokens.list()]
    message = f"unknown token '{arguments.name}' ({suggestion(arguments.name, names)})"
    raise RefusedError(message)
