"""The roles that are Celery's: worker, beat and Flower, each run in this process until a signal ends it."""

from __future__ import annotations

import logging
import os
import platform
import socket
from importlib.util import find_spec

from gitops_reconciler.errors import SettingsError
from gitops_reconciler.wiring import check_store
from gitops_workers.app import FleetApp, worker_queues
from gitops_workers.lifetime import block_ending_signals, ending_of_worker, leave_at_signal
from gitops_workers.logs import set_up_role_logging
from gitops_workers.watching import FLOWER_USER, FlowerIsHere, flower_login

_log = logging.getLogger("gitops_workers")

_FLOWER_TASKS_KEPT = 10_000
_LOOPBACK = "127.0.0.1"


def run_worker(app: FleetApp, name: str) -> int:
    """Serve the pools of the settings until SIGTERM; returns the exit code.

    Raises:
        ReconcileError: runs can't be started on this machine; says why.
        SettingsError: what answers as the store can't hold a fleet.

    """
    block_ending_signals()
    _begin(app)
    app.build_runs()
    worker = app.Worker(
        hostname=node_name(name),
        queues=worker_queues(app.settings),
        loglevel=app.settings.log_level,
        without_gossip=True,  # replies to both carry every revoked id, and nothing here needs them
        without_mingle=True,
        quiet=True,
    )
    ending_of_worker(app, wake=lambda: worker.hub.call_soon(lambda: None)).start()
    worker.start()
    return int(worker.exitcode or 0)


def _begin(app: FleetApp) -> None:
    set_up_role_logging(app.settings)
    for warning in check_store(app.settings):
        _log.warning("%s", warning)


def run_beat(app: FleetApp) -> int:
    """Sweep until SIGTERM, which ends the process.

    Raises:
        SettingsError: what answers as the store can't hold a fleet.

    """
    leave_at_signal(lambda: None)
    _begin(app)
    _log.info("beat sweeps", extra={"every_seconds": app.settings.sweep_interval.total_seconds()})
    app.Beat(loglevel=app.settings.log_level, schedule=os.devnull, quiet=True).run()
    return 0


def run_flower(app: FleetApp, port: int) -> int:
    """Serve Flower on loopback behind a password, read-only, until SIGTERM, which ends the process.

    Task events are sent meanwhile.
    """
    if find_spec("flower") is None:
        raise SettingsError("Flower is not installed: pip install 'gitops-reconciler[flower]'")
    block_ending_signals()
    set_up_role_logging(app.settings)
    port = port or _free_port()
    _log.info("Flower listens", extra={"url": f"http://{_LOOPBACK}:{port}/", "user": FLOWER_USER})
    options = {
        "address": _LOOPBACK,
        "port": port,
        "basic_auth": flower_login(app.settings),
        "conf": os.devnull,  # by default it runs ./flowerconfig.py, whatever folder this is
        "db": app.settings.layout.root / "flower",
        "enable_events": False,  # workers look at our own mark, so that a Flower that died leaves none on
        "logging": "none",  # ours are set up already
        "max_tasks": _FLOWER_TASKS_KEPT,
        "purge_offline_workers": 60,
        "read_only": True,
        "tasks_columns": "name,args,state,received,runtime,worker",
    }
    with FlowerIsHere(app.fleet.client) as mark:
        leave_at_signal(mark.take_away)
        app.start(["--quiet", "flower", *(f"--{name}={value}" for name, value in options.items())])
    return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def node_name(name: str) -> str:
    """Return a worker's name in the fleet, stable over restarts: `name@host`."""
    return f"{name}@{platform.node()}"
