"""The one composition root: settings in; clock, runner, redis, store, work, locks and git out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.retry import Retry

from gitops_reconciler.backends.registry import warm_up as warm_up_backends
from gitops_reconciler.clock import Clock, SystemClock
from gitops_reconciler.errors import SettingsError
from gitops_reconciler.git.authorship import warm_up as warm_up_authorship
from gitops_reconciler.git.credentials import load_credentials
from gitops_reconciler.git.mirrors import GitMirrors
from gitops_reconciler.logs import set_up_logging
from gitops_reconciler.processes import Runner, SubprocessRunner
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.runs.body import run_order
from gitops_reconciler.runs.launching import FleetRunner
from gitops_reconciler.runs.lease import WorkLease
from gitops_reconciler.runs.parts import RunParts, tool_environment
from gitops_reconciler.secrets import ENV_PREFIX, ReferencedSecrets
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.supervise.order import Lease, Order
from gitops_reconciler.supervise.zygote import Zygote
from gitops_reconciler.sync import TickDefaults
from gitops_reconciler.work.redis import RedisWork, Waker, WorkOptions


def redis_client(settings: Settings, *, is_impatient: bool = False) -> redis.Redis:
    """Return a client of the fleet's store, answering text; bounded waits everywhere.

    `is_impatient`: for supervisors, who must look at the clock again within 3 s: short timeouts and no retries inside.

    Raises:
        SettingsError: no store is set.

    """
    if settings.redis_url is None:
        message = "GITOPS_REDIS_URL is not set (for example redis://localhost:6379/0, or unix:///path/redis.sock)"
        raise SettingsError(message)
    return redis.Redis.from_url(
        settings.redis_url.get_secret_value(),
        decode_responses=True,
        socket_timeout=1 if is_impatient else 5,
        socket_connect_timeout=1 if is_impatient else 5,
        health_check_interval=0 if is_impatient else 15,
        retry=Retry(NoBackoff(), 0) if is_impatient else Retry(ExponentialWithJitterBackoff(cap=1.0, base=0.05), 3),
    )


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
    redactor = Redactor([*_own_secrets(settings), *_secrets_of(environ)])
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


def _own_secrets(settings: Settings) -> list[str]:
    """Return the secrets that this process holds itself, so that no run can print them."""
    urls = [url.get_secret_value() for url in (settings.redis_url, settings.broker_url) if url is not None]
    passwords = [form for url in urls for form in _passwords_in(url)]
    return passwords if settings.token is None else [*passwords, settings.token.get_secret_value()]


def _passwords_in(url: str) -> list[str]:
    """Return the passwords of a store's URL, as written and as they are meant."""
    parts = urlsplit(url)
    queried = [item.partition("=")[2] for item in parts.query.split("&") if item.startswith("password=")]
    return [form for written in (parts.password, *queried) if written for form in (written, unquote(written))]


def fleet_runner(settings: Settings, waker: Waker | None = None, clock: Clock | None = None) -> FleetRunner:
    """Return a worker's runner of items, with its warm server started."""
    for folder in (settings.layout.root, settings.layout.logs):
        Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    fleet = Fleet(settings, waker)
    return FleetRunner(
        work=fleet.work,
        launcher=Zygote(parts="gitops_reconciler.wiring:fleet_parts"),
        settings=settings,
        clock=clock or SystemClock(),
        read_run=fleet.store.run,
    )
