"""The one composition root: settings in; clock, runner, redis, store, work, locks and git out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import redis

from gitops_reconciler.backends.registry import warm_up as warm_up_backends
from gitops_reconciler.clock import Clock, SystemClock
from gitops_reconciler.errors import SettingsError
from gitops_reconciler.git.authorship import warm_up as warm_up_authorship
from gitops_reconciler.git.credentials import load_credentials
from gitops_reconciler.git.mirrors import GitMirrors
from gitops_reconciler.logs import set_up_logging
from gitops_reconciler.processes import Runner, SubprocessRunner
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.redis_address import passwords_in
from gitops_reconciler.redis_clients import Patience, blocking_client
from gitops_reconciler.redis_text import as_text
from gitops_reconciler.runs.body import run_order
from gitops_reconciler.runs.epochs import EpochFile, HostEpoch
from gitops_reconciler.runs.launching import FleetRunner, patrol_of
from gitops_reconciler.runs.lease import WorkLease
from gitops_reconciler.runs.parts import RunParts, tool_environment
from gitops_reconciler.secrets import ENV_PREFIX, ReferencedSecrets
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.store.fitness import check_server
from gitops_reconciler.store.redis import RedisStore, RunView
from gitops_reconciler.supervise.order import Lease, Order
from gitops_reconciler.supervise.zygote import Zygote
from gitops_reconciler.sync import TickDefaults
from gitops_reconciler.work.redis import RedisWork, Waker, WorkOptions

_PATIENT = Patience(answer_seconds=5, retries=3, health_seconds=15)
_IMPATIENT = Patience(answer_seconds=1)


def redis_client(settings: Settings, *, is_impatient: bool = False, patience: Patience | None = None) -> redis.Redis:
    """Return a client of the fleet's store, answering text; bounded waits everywhere.

    `is_impatient`: for supervisors, who must look at the clock again within 3 s: short timeouts and no retries inside.
    `patience`: another one than either.

    Raises:
        SettingsError: no store is set.

    """
    if settings.redis_url is None:
        message = "GITOPS_REDIS_URL is not set (for example redis://localhost:6379/0, or unix:///path/redis.sock)"
        raise SettingsError(message)
    patience = patience or (_IMPATIENT if is_impatient else _PATIENT)
    return blocking_client(settings.redis_url.get_secret_value(), patience)


def check_store(settings: Settings) -> list[str]:
    """Return what a role should say of the fleet's server when it starts; one that is away is waited for later.

    Raises:
        SettingsError: no store is set, or what answers there can't hold a fleet.

    """
    with redis_client(settings, is_impatient=True) as client:
        return check_server(as_text(client))


def broker_is_store(settings: Settings) -> bool:
    """Whether the broker lives in the store's own database, so that the scripts can push messages themselves."""
    return settings.broker_url is None or settings.broker_url == settings.redis_url


def work_options(settings: Settings) -> WorkOptions:
    """Return what the scripts are told."""
    return WorkOptions(
        pushes=broker_is_store(settings),
        kept_runs=settings.run_history,
        kept_seconds=round(settings.run_retention.total_seconds()),
        longest_sweep_pause_ms=round(max(15.0, 10 * settings.sweep_interval.total_seconds()) * 1000),
    )


@dataclass
class Fleet:
    """The parts that every role of the fleet shares, over one client."""

    settings: Settings
    waker: Waker | None = None

    @cached_property
    def client(self) -> redis.Redis:
        """The client of the store."""
        return redis_client(self.settings)

    @cached_property
    def store(self) -> RedisStore:
        """Reads and registrations."""
        return RedisStore(self.client)

    @cached_property
    def work(self) -> RedisWork:
        """The work protocol."""
        return RedisWork(self.client, options=work_options(self.settings), waker=self.waker)

    @cached_property
    def epoch(self) -> HostEpoch:
        """Whether the store is the one that this host worked with."""
        return HostEpoch(EpochFile(self.settings.layout.epoch_file), self.store, self.work)


def git_mirrors(
    settings: Settings, redactor: Redactor, runner: Runner, environ: Mapping[str, str], store: RedisStore | None = None
) -> GitMirrors:
    """Return the mirrors of this host, with the credentials of the settings."""
    secrets = ReferencedSecrets(folder=settings.secrets_dir, environ=environ, redactor=redactor)
    return GitMirrors(
        settings.layout.mirrors,
        credentials=load_credentials(settings.git_credentials_file, secrets),
        allow_local=settings.git_allow_local,
        runner=runner,
        timeout_seconds=settings.git_timeout.total_seconds(),
        redactor=redactor,
        latest=None if store is None else store.asked,
        environ=environ,
    )


class FleetParts:
    """What the warm server runs: a lease for the supervisor, a body for the run process. Each fork connects anew."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Read the settings of this process' environment."""
        self._settings = settings or load_settings()
        warm_up_authorship()
        warm_up_backends()

    def lease(self, order: Order) -> Lease:
        """Return the lease of an ordered run, on a connection of its own."""
        work = RedisWork(redis_client(self._settings, is_impatient=True), options=work_options(self._settings))
        return WorkLease(work=work, order=order, clock=SystemClock())

    def body(self, order: Order, lock_fd: int) -> dict[str, Any]:
        """Do the run; what libraries log goes to the run's log as well, and is redacted as all else there."""
        parts = run_parts(self._settings, os.environ)
        set_up_logging("console", "WARNING", redactor=parts.redactor)
        return run_order(order, lock_fd, parts)


def fleet_parts() -> FleetParts:
    """Return the parts of this environment: what the warm server is told to load."""
    return FleetParts()


def run_parts(settings: Settings, environ: Mapping[str, str]) -> RunParts:
    """Return what one run of the fleet is made of."""
    redactor = Redactor([*own_secrets(settings), *_secrets_of(environ)])
    fleet = Fleet(settings)

    def runner(lock_fd: int) -> Runner:
        return SubprocessRunner(
            own_group=False,
            grace_seconds=settings.lease_grace.total_seconds(),
            lock_fd=lock_fd,
            redactor=redactor,
        )

    return RunParts(
        store=fleet.store,
        work=fleet.work,
        mirrors=git_mirrors(settings, redactor, runner(-1), environ, fleet.store),
        layout=settings.layout,
        clock=SystemClock(),
        secrets=ReferencedSecrets(folder=settings.secrets_dir, environ=environ, redactor=redactor),
        redactor=redactor,
        runner=runner,
        environ=tool_environment(environ),
        defaults=TickDefaults(interval=settings.interval, deadline=settings.run_deadline),
    )


def _secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Return the secrets of this worker that runs may reference: masked in every run, referenced there or not."""
    return [value for name, value in environ.items() if name.startswith(ENV_PREFIX)]


def own_secrets(settings: Settings) -> list[str]:
    """Return the secrets that this process holds itself, so that no run and no log can print them."""
    urls = [url.get_secret_value() for url in (settings.redis_url, settings.broker_url) if url is not None]
    passwords = [form for url in urls for form in passwords_in(url)]
    return passwords if settings.token is None else [*passwords, settings.token.get_secret_value()]


def _reader_of_runs(settings: Settings) -> Callable[[str], RunView | None]:
    """Return what reads a run's record for the log, which is not worth to wait for: None when there is no answer."""
    store = RedisStore(redis_client(settings, is_impatient=True))

    def read(run: str) -> RunView | None:
        with suppress(redis.RedisError, OSError):
            return store.run(run)
        return None

    return read


def fleet_runner(settings: Settings, waker: Waker | None = None, clock: Clock | None = None) -> FleetRunner:
    """Return a worker's runner of items, with its warm server and its patrol started."""
    for folder in (settings.layout.root, settings.layout.logs):
        Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    fleet = Fleet(settings, waker)
    zygote = Zygote(parts="gitops_reconciler.wiring:fleet_parts")
    patrol = patrol_of(settings)
    patrol.start()  # after the warm server: a process with threads had better not start others
    return FleetRunner(
        work=fleet.work,
        launcher=zygote,
        settings=settings,
        clock=clock or SystemClock(),
        read_run=_reader_of_runs(settings),
        epoch=fleet.epoch,
        patrol=patrol,
    )
