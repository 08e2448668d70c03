"""Browser sessions made from a token, signed with what only the store knows of it: revoking it ends them all."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time

from gitops_reconciler.store.tokens import Token, Tokens

SESSION_COOKIE = "gitops_session"
CSRF_COOKIE = "gitops_csrf"
SESSION_SECONDS = 12 * 3600
_SHAPE = re.compile(r"(?P<id>[0-9a-f]{12})\.(?P<ends>[0-9]{1,12})\.(?P<mac>[0-9a-f]{64})", re.ASCII)
_CSRF = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


def make_session(token: Token) -> str:
    """Return the value of a session's cookie; the token itself is not in it."""
    ends = int(time.time()) + SESSION_SECONDS
    return f"{token.id}.{ends}.{_mac(token, ends)}"


def read_session(tokens: Tokens, value: str) -> Token | None:
    """Return the token that a session was made from; None when it is over, forged, or the token is revoked."""
    match = _SHAPE.fullmatch(value)
    token = tokens.get(match["id"]) if match else None
    if match is None or token is None or int(match["ends"]) < time.time():
        return None
    return token if hmac.compare_digest(match["mac"], _mac(token, int(match["ends"]))) else None


def make_csrf() -> str:
    """Return a random value that a form carries twice: in a field, and in a cookie that other sites can't read."""
    return secrets.token_urlsafe(32)


def csrf_cookie_of(value: str | None) -> str:
    """Return the browser's value when it has a good one, else a new one to set."""
    return value if value and _CSRF.fullmatch(value) else make_csrf()


def csrf_matches(cookie: str | None, field: str | None) -> bool:
    """Whether a form was made by us for this browser."""
    if not cookie or not field or not _CSRF.fullmatch(cookie):
        return False
    return hmac.compare_digest(cookie.encode(), field.encode("utf-8", "replace"))


def _mac(token: Token, ends: int) -> str:
    return hmac.new(bytes.fromhex(token.secret_hash), f"session:{token.id}:{ends}".encode(), hashlib.sha256).hexdigest()
