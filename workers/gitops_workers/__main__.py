"""`python -m gitops_workers worker|beat|flower`: how `up`, containers and systemd all start these roles."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gitops_reconciler.errors import GitopsError
from gitops_reconciler.settings import load_settings

_WRONG = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a role until a signal ends it; 2 when it can't be started, with the reason on stderr."""
    options = _parser().parse_args(arguments)
    try:
        settings = load_settings()
        # Late: Celery takes a third of a second, and wrong settings should be told at once.
        from gitops_workers.app import create_app
        from gitops_workers.roles import run_beat, run_flower, run_worker

        app = create_app(settings)
        if options.role == "worker":
            return run_worker(app, options.name)
        if options.role == "beat":
            return run_beat(app)
        return run_flower(app, settings.flower_port if options.port is None else options.port)
    except GitopsError as error:
        sys.stderr.write(f"{options.role}: {error}\n")
        return _WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gitops_workers", description="Roles of a gitops fleet.")
    roles = parser.add_subparsers(dest="role", required=True, metavar="worker|beat|flower")
    worker = roles.add_parser("worker", help="run ticks and send alerts")
    worker.add_argument("--name", default="worker", help="unique on this host and stable over restarts (worker)")
    roles.add_parser("beat", help="ask for what is due; any number may run")
    flower = roles.add_parser("flower", help="watch the workers in a browser")
    flower.add_argument("--port", type=int, help="a port of loopback, 0 for any (GITOPS_FLOWER_PORT)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
