"""What the commands that ask the API have in common: which server, which token, which format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gitops_reconciler.cli.parsing import Parser

if TYPE_CHECKING:
    from gitops_reconciler.cli.client import Client


def add_server_options(parser: Parser, *, has_output: bool = True) -> None:
    """Add the options that say whom to ask, and how to show the answer."""
    group = parser.add_argument_group("server")
    group.add_argument("--server", metavar="URL", help="the API (default: GITOPS_SERVER, else the running `gitops up`)")
    group.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with a bearer token (default: the one in GITOPS_TOKEN)"
    )
    if has_output:
        parser.add_argument(
            "-o", "--output", choices=("table", "json"), default="table", help="json: the API's answer as it came"
        )


def connect(arguments: argparse.Namespace) -> Client:
    """Return the client of the server that is meant."""
    from gitops_reconciler.cli.client import Client, find_server
    from gitops_reconciler.settings import load_settings

    return Client(find_server(load_settings(), server=arguments.server, token_file=arguments.token_file))
