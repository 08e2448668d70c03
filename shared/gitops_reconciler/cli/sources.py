"""`gitops source`: which repositories declare targets; registered here, never in a tree."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from gitops_reconciler.cli.asking import answer_in_words, seconds, tick_path, wait_for_end
from gitops_reconciler.cli.connecting import add_server_options, connect
from gitops_reconciler.cli.exits import Exit, RefusedError
from gitops_reconciler.cli.output import SHORT_SHA, Cell, Column, Screen, ago, note, print_body, status_cell, table
from gitops_reconciler.cli.parsing import Command, Parser, suggestion

if TYPE_CHECKING:
    from gitops_reconciler.cli.client import Client

_HERE = "gitops_reconciler.cli.sources"
_COMMANDS = (
    Command("add", "register a repository, or change its registration, and sync it", f"{_HERE}:configure_add"),
    Command("list", "list the sources and how their last sync went", f"{_HERE}:configure_list"),
    Command("remove", "forget a source; its targets stay as they are", f"{_HERE}:configure_remove"),
    Command("sync", "read a source's tree now", f"{_HERE}:configure_sync"),
)
_EXAMPLES = """
gitops source add infra --repo https://github.com/acme/infra
gitops source list
gitops source sync infra --wait 60
"""
_ADD_EXAMPLES = """
gitops source add infra --repo https://github.com/acme/infra
gitops source add edge --repo git@git.acme.org:edge.git --branch prod
gitops source add team-a --repo https://… --allow kinds=ansible,compose
"""
_ALLOWED = ("apps", "kinds", "pools", "provider_configs")
_COLUMNS = (
    Column(title="NAME"),
    Column(title="STATUS"),
    Column(title="REVISION", may_go=True),
    Column(title="SYNCED", may_go=True),
    Column(title="REPO", gives_way=True),
    Column(title="BRANCH", may_go=True),
    Column(title="PATH", may_go=True),
    Column(title="MESSAGE", gives_way=True),
)


def configure(parser: Parser) -> None:
    """Say what `source` takes."""
    parser.describe("Adds, lists, removes and syncs sources: the repositories whose trees declare targets.")
    parser.teach(_EXAMPLES)
    parser.add_commands(_COMMANDS)


def configure_add(parser: Parser) -> None:
    """Say what `source add` takes."""
    parser.describe(
        "Registers a repository whose tree declares targets, or changes a registration. Its tree is read at once, on "
        "each push (with a webhook) and every interval. Private repositories: GITOPS_GIT_CREDENTIALS_FILE."
    )
    parser.add_argument("name", metavar="NAME", help="name of the source: its targets are called NAME/…")
    parser.add_argument("--repo", required=True, metavar="URL", help="https://…, ssh://… or user@host:path")
    parser.add_argument("--branch", default="main", help="default: %(default)s")
    parser.add_argument("--path", default="gitops/", metavar="DIR", help="folder of documents (default: %(default)s)")
    parser.add_argument(
        "--interval", default="10m", help="look so often; 0: by push and by hand (default: %(default)s)"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        type=_allowance,
        metavar="WHAT=A,B",
        help=f"the tree may use these only (WHAT: {', '.join(_ALLOWED)}; default: everything)",
    )
    _add_wait(parser)
    add_server_options(parser)
    parser.teach(_ADD_EXAMPLES)
    parser.set_defaults(run=run_add)


def configure_list(parser: Parser) -> None:
    """Say what `source list` takes."""
    add_server_options(parser)
    parser.teach("gitops source list\ngitops source list -o json | jq '.items[].repo'")
    parser.set_defaults(run=run_list)


def configure_remove(parser: Parser) -> None:
    """Say what `source remove` takes."""
    parser.add_argument("name", metavar="NAME")
    add_server_options(parser, has_output=False)
    parser.teach("gitops source remove team-a")
    parser.set_defaults(run=run_remove)


def configure_sync(parser: Parser) -> None:
    """Say what `source sync` takes."""
    parser.add_argument("name", nargs="?", default="default", metavar="NAME", help="default: the source 'default'")
    _add_wait(parser)
    add_server_options(parser)
    parser.teach("gitops source sync\ngitops source sync infra --wait 60")
    parser.set_defaults(run=run_sync)


def _add_wait(parser: Parser) -> None:
    parser.add_argument(
        "--wait", type=seconds, metavar="SECONDS", help="wait so long for the sync, and print how it went"
    )


def _allowance(text: str) -> tuple[str, list[str]]:
    what, given, names = text.partition("=")
    if what not in _ALLOWED or not given:
        message = f"'{text}' is no WHAT=A,B (WHAT is one of: {', '.join(_ALLOWED)})"
        raise argparse.ArgumentTypeError(message)
    return what, [name for name in names.split(",") if name]


def run_add(arguments: argparse.Namespace) -> int:
    """Register a source."""
    client = connect(arguments)
    allow: dict[str, list[str]] = {}
    for what, names in arguments.allow:
        allow.setdefault(what, []).extend(names)
    fields = ("name", "repo", "branch", "path", "interval")
    body: dict[str, Any] = {**{name: getattr(arguments, name) for name in fields}, "allow": allow}
    answer = client.post("sources", body)
    if arguments.wait is not None:
        return _wait_for_sync(client, arguments)
    if arguments.output == "json":
        print_body(answer.body)
        return Exit.OK
    print(f"source '{arguments.name}' is registered; its tree is being read (`gitops source list` shows how it went)")
    return Exit.OK


def run_list(arguments: argparse.Namespace) -> int:
    """List the sources."""
    answer = connect(arguments).get("sources")
    if arguments.output == "json":
        print_body(answer.body)
        return Exit.OK
    items = answer.json["items"]
    if not items:
        note("there are no sources (`gitops source add NAME --repo URL` registers one)")
        return Exit.OK
    rows = [
        [
            Cell(text=item["name"]),
            status_cell(item["status"]),
            Cell(text=item["revision"][:SHORT_SHA]),
            Cell(text=f"{ago(item['last_run']['started_at'])} ago" if item["last_run"] else ""),
            Cell(text=item["repo"]),
            Cell(text=item["branch"]),
            Cell(text=item["path"]),
            Cell(text=item["message"]),
        ]
        for item in items
    ]
    print("\n".join(table(_COLUMNS, rows, Screen.of())))
    return Exit.OK


def run_remove(arguments: argparse.Namespace) -> int:
    """Forget a source."""
    from gitops_reconciler.cli.client import path_of

    client = connect(arguments)
    try:
        client.delete(path_of("sources", arguments.name))
    except RefusedError as error:
        raise _with_names(client, arguments.name, error) from error
    print(f"source '{arguments.name}' is removed; its targets go on with what was declared last")
    return Exit.OK


def run_sync(arguments: argparse.Namespace) -> int:
    """Ask for a sync."""
    client = connect(arguments)
    if arguments.wait is not None:
        return _wait_for_sync(client, arguments)
    answer = _ask(client, arguments.name)
    if arguments.output == "json":
        print_body(answer.body)
        return Exit.OK
    print(f"source '{arguments.name}' {answer_in_words(answer.json)}")
    return Exit.OK


def _wait_for_sync(client: Client, arguments: argparse.Namespace) -> Exit:
    until = time.monotonic() + arguments.wait
    return wait_for_end(client, _ask(client, arguments.name).json, until=until, output=arguments.output)


def _ask(client: Client, name: str) -> Any:
    try:
        return client.post(tick_path(f"source:{name}"))
    except RefusedError as error:
        raise _with_names(client, name, error) from error


def _with_names(client: Client, name: str, error: RefusedError) -> RefusedError:
    """Return the error with the sources to choose from, if it is about the name."""
    names = [str(item["name"]) for item in client.get("sources").json["items"]]
    if name in names:
        return error
    return RefusedError(f"unknown source '{name}' ({suggestion(name, names)})")
