"""`gitops up`: options in, the whole fleet on this machine out."""

from __future__ import annotations

import argparse
from pathlib import Path

from gitops_reconciler.cli.parsing import Parser, at_least_one

_EXAMPLES = """
gitops up                                 # http://127.0.0.1:8420/
GITOPS_REPO_URL=https://github.com/acme/infra gitops up
gitops up --port 0 --state-dir /tmp/try   # any free port, another folder
"""


def configure(parser: Parser) -> None:
    """Say what `up` takes."""
    parser.describe(
        "Runs the whole fleet on this machine: an embedded store (unless GITOPS_REDIS_URL is set), receiver, console "
        "and API, scheduler, workers, and Flower where it is installed. Ctrl-C ends all of it.",
        "A child that dies is started again. One fleet runs on one state folder. All settings: docs/configuration.md.",
    )
    parser.add_argument("--host", help="address to listen on (default: GITOPS_HOST, else 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, metavar="N", help="port to listen on, 0: any free one (default: GITOPS_PORT, else 8420)"
    )
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="where everything is kept")
    parser.add_argument("--workers", type=at_least_one, default=1, metavar="N", help="worker processes (default: 1)")
    parser.add_argument("--no-flower", action="store_true", help="do not run Flower")
    parser.teach(_EXAMPLES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal."""
    from gitops_reconciler.cli.up import UpOptions, run_up
    from gitops_reconciler.settings import load_settings

    given = {
        "host": arguments.host,
        "port": arguments.port,
        "GITOPS_STATE_DIR": None if arguments.state_dir is None else arguments.state_dir.absolute(),
    }
    settings = load_settings(**{name: value for name, value in given.items() if value is not None})
    return run_up(settings, UpOptions(workers=arguments.workers, flower=not arguments.no_flower))
