"""What `gitops up` does: take the folder, find a server, keep everything running, end in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from gitops_reconciler.cli.up.addresses import claim_port, url_of
from gitops_reconciler.cli.up.lines import Lines
from gitops_reconciler.cli.up.ownership import Owner, owned
from gitops_reconciler.cli.up.roles import SERVER, Role, fleet_roles, server_role
from gitops_reconciler.cli.up.server import (
    NOISE,
    bundled_server,
    find_server,
    make_server_folders,
    server_command,
    server_url,
)
from gitops_reconciler.clock import SystemClock
from gitops_reconciler.errors import SettingsError
from gitops_reconciler.layout import Layout
from gitops_reconciler.processes import SubprocessRunner
from gitops_reconciler.redaction import redact_url
from gitops_reconciler.secrets import made_secret
from gitops_reconciler.settings import Settings
from gitops_reconciler.supervise.linux import require_linux
from gitops_reconciler.wiring import check_store

LOOPBACK = "127.0.0.1"
_PROVIDERS = ("github", "gitlab")
_NEEDED = {"gitops_services": "receiver", "gitops_workers": "worker", "supervisor": "worker", "celery": "worker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What is not a setting."""

    workers: int = 1
    """Worker processes, each with as many slots as the settings say."""
    flower: bool = True
    """Where it is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    roles: list[Role]
    url: str
    flower_url: str | None


def run_up(settings: Settings, options: UpOptions) -> int:
    """Run the fleet until SIGINT or SIGTERM; returns 0 when nothing of it is left. For a process of its own.

    Raises:
        StateFolderBusyError: another one runs on this state folder.
        SettingsError: a port can't be had, the store that is set can't hold a fleet, or something that is needed is
            not installed.
        ToolMissingError: there is no server, and none is set.

    """
    require_linux()
    _require_parts()
    from gitops_reconciler.cli.up.supervision import US, end_leftovers, supervise

    layout = settings.layout
    _make_root(layout)
    with owned(layout) as owner:
        plan = _plan(settings, options)
        names = [US, *(role.name for role in plan.roles)]
        lines = Lines(stream=sys.stdout.buffer, names=names, has_colour=_has_colour(), noise={SERVER: NOISE})
        _introduce(owner, plan)
        for text in _greeting(settings, plan):
            lines.say(US, text)
        try:
            supervise(plan.roles, lines)
        finally:
            end_leftovers(settings.lease_grace.total_seconds() + 5, lambda text: lines.say(US, text))
        lines.say(US, "ended; nothing is left running")
    return 0


def _require_parts() -> None:
    missing = sorted({extra for module, extra in _NEEDED.items() if find_spec(module) is None})
    if missing:
        raise SettingsError(f"`gitops up` needs more: pip install 'gitops-reconciler[{','.join(missing)}]'")


def _make_root(layout: Layout) -> None:
    try:
        layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        layout.up_lock.touch(mode=0o600)
    except OSError as error:
        raise SettingsError(
            f"the state folder '{layout.root}' can't be used: {error.strerror}; choose another with --state-dir"
        ) from error


def _plan(settings: Settings, options: UpOptions) -> _Plan:
    layout = settings.layout
    port = claim_port(settings.host, settings.port, "--port")
    has_flower = options.flower and find_spec("flower") is not None
    flower_port = claim_port(LOOPBACK, settings.flower_port, "GITOPS_FLOWER_PORT") if has_flower else 0
    server = _server(settings)
    environment = {
        **_environment(settings),
        "GITOPS_PORT": str(port),
        "GITOPS_FLOWER_PORT": str(flower_port),
        "PYTHONUNBUFFERED": "1",
    }
    roles = fleet_roles(
        settings,
        workers=options.workers,
        has_flower=has_flower,
        waits_for=layout.redis_socket if server else None,
        environment=environment,
    )
    return _Plan(
        roles=[*server, *roles],
        url=url_of(settings.host, port),
        flower_url=url_of(LOOPBACK, flower_port) if has_flower else None,
    )


def _server(settings: Settings) -> list[Role]:
    if settings.redis_url is not None:
        check_store(settings)  # what it only warns of, each role says
        return []
    layout = settings.layout
    make_server_folders(layout)
    return [server_role(server_command(find_server(SubprocessRunner(), os.environ, bundled_server()), layout), layout)]


def _environment(settings: Settings) -> Mapping[str, str]:
    """Return what the roles must be told, since they read their settings from the environment."""
    layout = settings.layout
    webhooks = settings.webhook_secrets_dir
    if webhooks is None:
        webhooks = layout.webhook_secrets
        for provider in _PROVIDERS:
            made_secret(webhooks / provider)
    url = server_url(layout) if settings.redis_url is None else settings.redis_url.get_secret_value()
    return {
        "GITOPS_STATE_DIR": str(layout.root.absolute()),
        "GITOPS_REDIS_URL": url,
        "GITOPS_WEBHOOK_SECRETS_DIR": str(webhooks),
        "GITOPS_HOST": settings.host,
    }


def _introduce(owner: Owner, plan: _Plan) -> None:
    token = owner.layout.secrets / "token"
    owner.introduce(
        {
            "url": plan.url,
            "flower_url": plan.flower_url,
            "token_file": str(token) if token.exists() else None,
            "started": SystemClock().now().isoformat(timespec="seconds"),
        }
    )


def _greeting(settings: Settings, plan: _Plan) -> list[str]:
    layout = settings.layout
    release = ""
    with suppress(PackageNotFoundError):
        release = f" {version('gitops-reconciler')}"
    store = redact_url(settings.redis_url.get_secret_value()) if settings.redis_url else "a server of its own"
    webhooks = settings.webhook_secrets_dir or layout.webhook_secrets
    told = [
        f"gitops{release}: state in {layout.root}, store: {store}",
        f"console   {plan.url}/",
        f"webhooks  {plan.url}/webhooks/{{{','.join(_PROVIDERS)}}}, secrets in {webhooks}/",
    ]
    if plan.flower_url:
        told.append(f"flower    {plan.flower_url}/, user gitops, password in {layout.flower_password}")
    return [*told, "Ctrl-C ends it"]


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
