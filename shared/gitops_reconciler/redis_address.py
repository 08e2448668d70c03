"""The forms of a Redis address: what GITOPS_REDIS_URL and GITOPS_BROKER_URL may say, and what it means.

redis://[user:password@]host[:port][/database]       rediss://… the same over TLS
unix://[user:password@]/path/redis.sock[?db=…]
sentinel://[user:password@]host[:port][,host[:port]…]/service[/database][?sentinel_password=…]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

STORE_SCHEMES = ("redis://", "rediss://", "unix://", "sentinel://")
BROKER_SCHEMES = (*STORE_SCHEMES, "redis+socket://")
_SENTINEL_PORT = 26379
_SENTINEL_OPTIONS = {"sentinel_username", "sentinel_password"}
_SERVICE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PASSWORDS = ("password=", "sentinel_password=")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelAddress:
    """A service whose master is found by asking any of its sentinels."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    database: int = 0
    username: str | None = None
    """Of the servers, not of the sentinels."""
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None


def check_address(url: str, schemes: tuple[str, ...]) -> None:
    """Refuse an address that no client could use, without ever repeating a password in it.

    Raises:
        ValueError: says what is wrong.

    """
    if not url.startswith(schemes):
        message = f"must begin with one of: {', '.join(schemes)}"
        raise ValueError(message)
    if url.startswith("sentinel://"):
        sentinel_address(url)
        return
    parts = urlsplit(url)
    if url.startswith(("unix://", "redis+socket://")):
        if not parts.path.strip("/"):
            raise ValueError("names no socket (as in unix:///run/redis/redis.sock)")
        return
    _check_port(parts.netloc.rpartition("@")[2])
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        raise ValueError("ends in no number of a database (as in redis://host:6379/0)")


def sentinel_address(url: str) -> SentinelAddress:
    """Return what a `sentinel://` address names.

    Raises:
        ValueError: it names no sentinel or no service, or asks for what is not supported.

    """
    parts = urlsplit(url)
    service, _, database = parts.path.strip("/").partition("/")
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    unknown = sorted(set(query) - _SENTINEL_OPTIONS)
    if unknown:
        allowed = ", ".join(sorted(_SENTINEL_OPTIONS))
        message = f"'{unknown[0]}' can't be used with sentinel:// (allowed: {allowed}; TLS is not supported with it)"
        raise ValueError(message)
    if ";" in url or not _SERVICE.fullmatch(service) or (database and not database.isdecimal()):
        raise ValueError("must be sentinel://host:26379,host:26379/service or …/service/database")
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    return SentinelAddress(
        sentinels=tuple(_sentinel(host) for host in hosts.split(",")),
        service=service,
        database=int(database or 0),
        username=unquote(username) or None,
        password=unquote(password) or None,
        sentinel_username=query.get("sentinel_username"),
        sentinel_password=query.get("sentinel_password"),
    )


def passwords_in(url: str) -> list[str]:
    """Return the passwords of an address, as written and as they are meant."""
    parts = urlsplit(url)
    queried = [item.partition("=")[2] for item in parts.query.split("&") if item.startswith(_PASSWORDS)]
    return [form for written in (parts.password, *queried) if written for form in (written, unquote(written))]


def _sentinel(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator:
        host, port = text, str(_SENTINEL_PORT)
    _check_port(text)
    if not host:
        raise ValueError("must be sentinel://host:26379,host:26379/service or …/service/database")
    return host, int(port)


def _check_port(place: str) -> None:
    port = place.rpartition("]")[2].rpartition(":")
    if port[1] and not (port[2].isdecimal() and 0 < int(port[2]) < 2**16):  # ports have 16 bits
        raise ValueError("has a port that is no number from 1 to 65535 (a password with :, /, ? or @ must be quoted)")
