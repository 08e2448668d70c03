"""Runs the application: `python -m gitops_services`."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI
from redis.exceptions import RedisError

from gitops_reconciler.errors import SettingsError
from gitops_reconciler.logs import set_up_logging
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.wiring import check_store, own_secrets
from gitops_services.access import is_loopback
from gitops_services.app import create_app, parts_of, streams_of
from gitops_services.connections import CarefulProtocol
from gitops_services.parts import Parts
from gitops_services.receiver.routes import providers

_log = logging.getLogger(__name__)
_SHUTDOWN_SECONDS = 15
_KEEP_ALIVE_SECONDS = 15
_STORE_SECONDS = 20.0
_STORE_PAUSE_SECONDS = 0.2
_WRONG = 2


class _Server(uvicorn.Server):
    """Says where it listens once it does, and ends open streams as soon as it is told to stop."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say the address; with port 0 the one that was found."""
        await super().startup(sockets=sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            _log.info("listening on http://%s:%s", name, port)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let event streams end by themselves, since the server waits for them."""
        streams_of(self._app).closing.set()
        super().handle_exit(sig, frame)


def main() -> int:
    """Serve until SIGTERM or Ctrl-C. Answers 2 when a setting is wrong."""
    try:
        settings = load_settings()
        set_up_logging(settings.log_format, settings.log_level, redactor=Redactor(own_secrets(settings)))
        app = create_app(settings)
        for warning in check_store(settings):
            _log.warning("%s", warning)
        check_binding(parts_of(app), settings)
    except SettingsError as error:
        sys.stderr.write(f"gitops-services: {error}\n")
        return _WRONG
    return serve(app, settings)


def serve(app: FastAPI, settings: Settings) -> int:
    """Serve an application until it is told to stop."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=CarefulProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who is this machine must not be for a header to say
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _heard)  # uvicorn raises them again when it has ended: an ordered end is no failure
    server = _Server(config, app)
    server.run()
    return 0 if server.started else 1


def _heard(_number: int, _frame: FrameType | None) -> None:
    """Let an end that was asked for be one."""


def check_binding(parts: Parts, settings: Settings) -> None:
    """Refuse to be reached from other machines when nothing tells friend from stranger.

    Raises:
        SettingsError: the host is not loopback, and there is neither a token nor a webhook secret.

    """
    if is_loopback(settings.host) or parts.webhook_secrets.any_of(provider.name for provider in providers()):
        return
    if not _has_token(parts):
        raise SettingsError(
            f"GITOPS_HOST: '{settings.host}' can be reached from other machines, and there is neither a token nor a "
            "webhook secret (make one with `gitops token create NAME`, or put a secret into GITOPS_WEBHOOK_SECRETS_DIR)"
        )


def _has_token(parts: Parts) -> bool:
    """Whether there is a token; waits a little for a store that starts at the same time."""
    end = time.monotonic() + _STORE_SECONDS
    while True:
        try:
            return parts.tokens.exist()
        except (RedisError, OSError) as error:
            if time.monotonic() > end:
                raise SettingsError(f"GITOPS_REDIS_URL: {trouble(error)}") from None
            time.sleep(_STORE_PAUSE_SECONDS)
