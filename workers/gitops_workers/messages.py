"""What goes over the wire: names of tasks and queues, and the broker's address; imports no Celery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from gitops_reconciler.errors import SettingsError
from gitops_reconciler.keys import NOTIFY_QUEUE, NOTIFY_TASK, TICK_QUEUE_PREFIX, TICK_TASK
from gitops_reconciler.redis_address import SentinelAddress, sentinel_address
from gitops_reconciler.settings import Settings

__all__ = [
    "BUILT_IN_POOLS",
    "EVERY_POOL",
    "NOTIFY_QUEUE",
    "NOTIFY_TASK",
    "TICK_TASK",
    "broker_url",
    "consumed_pools",
    "notifies",
    "sentinel_options",
    "tick_queue",
]

EVERY_POOL = "*"
_SENTINEL_SECONDS = 5
BUILT_IN_POOLS = (
    "ansible",
    "cloudformation",
    "compose",
    "custom",
    "opentofu",
    "pi",
    "pulumi",
    "resources",
    "source",
    "terraform",
)
"""Where targets go whose document names no pool: the kinds, `custom` for declared ones, `source` for syncs."""


def tick_queue(pool: str) -> str:
    """Return the queue whose messages ask for ticks in a pool."""
    return f"{TICK_QUEUE_PREFIX}{pool}"


def consumed_pools(settings: Settings, known: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the pools that a worker with these settings serves; `known` are those that items of the fleet want."""
    named = set(settings.pools) - {EVERY_POOL, NOTIFY_QUEUE}
    return tuple(sorted(named | {*BUILT_IN_POOLS, *known} if EVERY_POOL in settings.pools else named))


def notifies(settings: Settings) -> bool:
    """Whether a worker with these settings sends alerts: it serves everything, was told to, or has a channel."""
    return bool({EVERY_POOL, NOTIFY_QUEUE} & set(settings.pools)) or bool(settings.notify)


def broker_url(settings: Settings) -> str:
    """Return the broker's address as kombu writes it: GITOPS_BROKER_URL, else the store's own.

    Raises:
        SettingsError: neither is set, and without them there is no fleet.

    """
    url = _broker_address(settings)
    if url.startswith("sentinel://"):
        return _sentinel_url(sentinel_address(url))
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return _socket_url(url)
    if parts.scheme not in {"redis", "rediss"}:
        return url
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    database = query.pop("db", None) or parts.path.strip("/") or "0"
    kept = {name: value for name, value in query.items() if name.startswith("ssl_")}
    if parts.scheme == "rediss":  # kombu would trust any certificate
        kept.setdefault("ssl_cert_reqs", "required")
    return parts._replace(path=f"/{database}", query=urlencode(kept)).geturl()


def sentinel_options(settings: Settings) -> dict[str, Any]:
    """Return what kombu wants to know of a `sentinel://` broker beside its URL; `{}` for others."""
    url = _broker_address(settings)
    if not url.startswith("sentinel://"):
        return {}
    address = sentinel_address(url)
    login = {"username": address.sentinel_username, "password": address.sentinel_password}
    return {
        "master_name": address.service,
        "sentinel_kwargs": {**login, "socket_timeout": _SENTINEL_SECONDS, "socket_connect_timeout": _SENTINEL_SECONDS},
    }


def _broker_address(settings: Settings) -> str:
    secret = settings.broker_url or settings.redis_url
    if secret is None:
        raise SettingsError("GITOPS_REDIS_URL is not set; worker, beat and Flower belong to the fleet that it names")
    return secret.get_secret_value()


def _sentinel_url(address: SentinelAddress) -> str:
    user, password = (quote(text or "", safe="") for text in (address.username, address.password))
    login = f"{user}:{password}@" if user or password else ""
    return ";".join(f"sentinel://{login}{host}:{port}/{address.database}" for host, port in address.sentinels)


def _socket_url(url: str) -> str:
    parts = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    user = quote(parts.username or query.get("username", ""), safe="")
    password = quote(parts.password or query.get("password", ""), safe="")
    login = f"{user}:{password}@" if user or password else ""
    return f"redis+socket://{login}{parts.path}?virtual_host={query.get('db', '0')}"
