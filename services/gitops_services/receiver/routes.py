"""The receiver's parts put together, and where it is reached."""

from __future__ import annotations

from dataclasses import dataclass

import redis.asyncio
from starlette.routing import Route

from gitops_reconciler.settings import Settings
from gitops_reconciler.work.redis_async import AsyncRedisWork
from gitops_services.receiver.base import Provider
from gitops_services.receiver.bodies import Bodies, BodyLimits
from gitops_services.receiver.deliveries import Deliveries
from gitops_services.receiver.endpoint import WebhookEndpoint
from gitops_services.receiver.github import GitHub
from gitops_services.receiver.gitlab import GitLab
from gitops_services.receiver.secret_files import SecretFiles

_BODIES_HELD = 4
"""How many bodies of the largest size are held at once."""


def providers() -> tuple[Provider, ...]:
    """Return every provider that is built."""
    return (GitHub(), GitLab())


def secret_files(settings: Settings) -> SecretFiles:
    """Return the webhook secrets of these settings."""
    return SecretFiles(settings.webhook_secrets_dir or settings.layout.secrets / "webhooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """The face that forges talk to."""

    deliveries: Deliveries
    routes: tuple[Route, ...]


def build_receiver(
    settings: Settings, client: redis.asyncio.Redis, work: AsyncRedisWork, secrets: SecretFiles
) -> Receiver:
    """Return the receiver over these parts."""
    limit = settings.webhook_body_limit_mib << 20
    deliveries = Deliveries(client)
    endpoint = WebhookEndpoint(
        providers=providers(),
        secrets=secrets,
        bodies=Bodies(BodyLimits(body_bytes=limit, held_bytes=_BODIES_HELD * limit)),
        work=work,
        deliveries=deliveries,
    )
    paths = ("/webhooks/{provider}", "/webhooks/{provider}/{id}")
    routes = tuple(Route(path, endpoint, methods=["POST"], include_in_schema=False) for path in paths)
    return Receiver(deliveries=deliveries, routes=routes)
