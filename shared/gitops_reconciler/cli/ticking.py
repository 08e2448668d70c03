"""`gitops tick NAME`: one attempt at one target in this process (R0.26); with a store, under the lease of the fleet."""

from __future__ import annotations

import argparse
import getpass
import json
import logging
import os
import platform
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gitops_reconciler.cli.exits import Exit
from gitops_reconciler.cli.output import SHORT_SHA, Screen, counts_of, note, one_line, status_cell
from gitops_reconciler.cli.parsing import Parser

if TYPE_CHECKING:
    from gitops_reconciler.runs.launching import FleetRunner
    from gitops_reconciler.settings import Settings

_EXAMPLES = """
gitops tick web                            # documents of gitops/ in the current repository
gitops tick web --tree /srv/infra/gitops   # of another folder, for example from a timer
gitops tick web -v                         # with the tools' output on stderr
"""
_FAILED = {"failed", "aborted", "lost", "unreachable"}


def configure(parser: Parser) -> None:
    """Say what `tick` takes."""
    parser.describe(
        "Makes one attempt to converge one target, in this process, and ends.",
        "Without GITOPS_REDIS_URL no server is needed: the documents of a folder count, the lock is a file, and what "
        "the repository's remote has is fetched into a checkout of our own (your clone is not touched). With it, the "
        "target is one of the fleet, and its lease keeps the workers out.",
        "A target that is busy is skipped: exit 0.",
    )
    parser.add_argument("name", metavar="NAME", help="the target")
    parser.add_argument(
        "--tree", type=Path, metavar="DIR", help="folder of documents (default: gitops/ of this repository)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show the run's log on stderr")
    parser.teach(_EXAMPLES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Tick here or in the fleet."""
    from gitops_reconciler.settings import load_settings

    settings = load_settings()
    _set_up_logging(is_verbose=arguments.verbose)
    if settings.redis_url is None:
        return _tick_here(arguments, settings)
    if arguments.tree is not None:
        note("--tree is not used: GITOPS_REDIS_URL is set, so the fleet's documents count")
    return _tick_in_fleet(arguments, settings)


def _set_up_logging(*, is_verbose: bool) -> None:
    """Keep our own log quiet: the outcome is printed, and what the tools say is asked for with -v."""
    from gitops_reconciler.logs import set_up_logging

    set_up_logging("console", "INFO" if is_verbose else "ERROR")
    if not is_verbose:
        logging.getLogger("gitops_reconciler").setLevel("CRITICAL")


def _tick_here(arguments: argparse.Namespace, settings: Settings) -> int:
    from gitops_reconciler.layout import DEFAULT_SOURCE
    from gitops_reconciler.local import find_folder, tick_here

    folder = find_folder(arguments.tree, Path.cwd())
    with _log_stream(is_verbose=arguments.verbose) as log:
        outcome = tick_here(arguments.name, folder, settings, log=log, say=note)
    counts = counts_of(outcome.counts.model_dump() if outcome.counts else None)
    _print_outcome(f"{DEFAULT_SOURCE}/{outcome.target}", outcome.state.value, counts, outcome.message, outcome.revision)
    return _exit_of(outcome.state.value)


@contextmanager
def _log_stream(*, is_verbose: bool) -> Iterator[TextIO]:
    if is_verbose:
        yield sys.stderr
    else:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            yield nowhere


def _tick_in_fleet(arguments: argparse.Namespace, settings: Settings) -> int:
    from gitops_reconciler.cli.stores import reaching_store
    from gitops_reconciler.wiring import Fleet, fleet_runner

    store = Fleet(settings).store
    with reaching_store():
        item = store.resolve(arguments.name)
        generation = _ask_quietly(settings, item)
        run_id = _run_to_its_end(fleet_runner(settings), item)
        record = None if run_id is None else store.run(run_id)
        view = store.item(item)
    if record is None:
        status = view.status if view else "forgotten"
        _print_outcome(
            item, "skipped", "", f"not to be had now ({status}); the ask is kept: generation {generation}", ""
        )
        return Exit.OK
    if arguments.verbose:
        sys.stderr.write(record.fields.get("log", ""))
    counts = counts_of(json.loads(record.fields.get("counts") or "null"))
    _print_outcome(item, record.state, counts, record.fields.get("message", ""), record.fields.get("revision", ""))
    return _exit_of(record.state)


def _run_to_its_end(runner: FleetRunner, item: str) -> str | None:
    """Run the item; Ctrl-C interrupts the run, which still writes its end, and is then passed on."""
    with ThreadPoolExecutor(1) as threads:
        ending = threads.submit(runner.run, item)
        try:
            return ending.result()
        except KeyboardInterrupt:
            runner.stop()
            ending.result()
            raise
        finally:
            runner.close()


def _actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"  # containers often run as a user without a name
    return f"{user}@{platform.node()}"


def _ask_quietly(settings: Settings, item: str) -> int:
    """Ask without a message to the workers: this process is about to run it. Returns the generation.

    Should we die before the claim, a sweep sends the message after all.
    """
    from dataclasses import replace

    from gitops_reconciler.outcomes import Trigger
    from gitops_reconciler.wiring import Fleet, work_options
    from gitops_reconciler.work.base import Cause
    from gitops_reconciler.work.redis import RedisWork

    work = RedisWork(Fleet(settings).client, options=replace(work_options(settings), pushes=False))
    (ask,) = work.request([item], Cause(trigger=Trigger.MANUAL, actor=_actor()))
    return ask.generation


def _print_outcome(target: str, state: str, counts: str, message: str, revision: str) -> None:
    screen = Screen.of()
    at = f"at {revision[:SHORT_SHA]}" if revision else ""
    shown = screen.paint(state, status_cell(state).style)
    print("  ".join(part for part in (f"{target} {shown}", counts, one_line(message), at) if part))


def _exit_of(state: str) -> Exit:
    return Exit.FAILED if state in _FAILED else Exit.OK
