"""Bearer tokens: shown once when made, kept as a hash, checked in constant time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Self

from gitops_reconciler import keys
from gitops_reconciler.clock import Clock, SystemClock
from gitops_reconciler.redis_text import AnyRedis, as_text

PREFIX = "gor_"
_ID_BYTES, _SECRET_BYTES = 6, 32
_SHAPE = re.compile(r"gor_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}", re.ASCII)
_NOBODY = "0" * 64  # compared with where no token has that id, so that a miss takes as long as a hit


class Role(IntEnum):
    """What a caller may do; each role may do all that the ones before it may."""

    VIEWER = 1
    """Reads."""
    OPERATOR = 2
    """Also asks for ticks."""
    ADMIN = 3
    """Also changes what the fleet is made of."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the role of that name; raises ValueError that says which there are."""
        try:
            return cls[text.upper()]
        except KeyError:
            message = f"unknown role '{text}' (must be one of: {', '.join(role.label for role in cls)})"
            raise ValueError(message) from None

    @property
    def label(self) -> str:
        """The role's name as people and records write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is kept of a token: all but its secret."""

    id: str
    name: str
    role: Role
    created_at: datetime
    secret_hash: str
    """SHA-256 of the secret in hex; enough for 256 random bits, which nobody can guess."""


_Found = list[Token]  # `list` is the name of a method below


class Tokens:
    """The tokens of one fleet. Safe to share between threads; client with decode_responses=True."""

    def __init__(self, client: AnyRedis, *, clock: Clock | None = None) -> None:
        """Keep them through this client."""
        self._client = as_text(client)
        self._clock = clock or SystemClock()

    def create(self, name: str, role: Role) -> str:
        """Make a token and return it in plain, `gor_…`: the only time that it can be seen.

        Raises ValueError when the name is malformed or taken.
        """
        if not _NAME.fullmatch(name):
            message = f"'{name[:80]}' is no token name (allowed: letters, digits, '.', '_', '@', '-', at most 63)"
            raise ValueError(message)
        if any(token.name == name for token in self.list()):
            message = f"there is a token named '{name}' already; revoke it first, or choose another name"
            raise ValueError(message)
        token_id = secrets.token_hex(_ID_BYTES)
        secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")
        kept = {
            "name": name,
            "role": role.label,
            "created_at": self._clock.now().isoformat(),
            "hash": _hash(secret),
        }
        self._client.hset(keys.TOKENS, token_id, json.dumps(kept, sort_keys=True))
        return f"{PREFIX}{token_id}_{secret}"

    def verify(self, plain: str) -> Token | None:
        """Return whose token that is; None for anything else, in the same time."""
        match = _SHAPE.fullmatch(plain)
        token = self.get(match["id"]) if match else None
        expected = token.secret_hash if token else _NOBODY
        is_right = hmac.compare_digest(_hash(match["secret"] if match else ""), expected)
        return token if is_right else None

    def get(self, token_id: str) -> Token | None:
        """Return the token of that id."""
        return _token(token_id, self._client.hget(keys.TOKENS, token_id))

    def list(self) -> _Found:
        """Return all tokens, by name."""
        found = (_token(token_id, text) for token_id, text in self._client.hgetall(keys.TOKENS).items())
        return sorted((token for token in found if token), key=lambda token: token.name)

    def revoke(self, name_or_id: str) -> bool:
        """Make a token worthless, and every session made from it; False when there is none of that name or id."""
        ids = [token.id for token in self.list() if name_or_id in {token.id, token.name}]
        return bool(ids and self._client.hdel(keys.TOKENS, *ids))

    def exist(self) -> bool:
        """Whether there is any token: from then on every caller needs one."""
        return bool(self._client.hlen(keys.TOKENS))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(token_id: str, text: str | None) -> Token | None:
    """Read what Redis holds; anything malformed is no token."""
    try:
        kept: dict[str, Any] = json.loads(text or "null")
        return Token(
            id=token_id,
            name=str(kept["name"]),
            role=Role.parse(str(kept["role"])),
            created_at=datetime.fromisoformat(str(kept["created_at"])),
            secret_hash=str(kept["hash"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
