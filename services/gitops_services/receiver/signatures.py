"""The signature schemes, over raw bytes and in constant time. Nothing empty ever verifies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

from gitops_services.receiver.base import RawBody, Secrets

_HUB = re.compile(r"sha256=([0-9a-fA-F]{64})", re.ASCII)
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
TOLERANCE_SECONDS = 300
SIGNING_PREFIX = b"whsec_"


def hub_sha256(header: str | None, raw: RawBody, secrets: Secrets) -> bool:
    """Whether `sha256=<hex>` is the HMAC of the body under one of the secrets."""
    match = _HUB.fullmatch(header or "")
    if match is None:
        return False
    given = bytes.fromhex(match[1])
    hits = [hmac.compare_digest(given, hmac.digest(secret, raw, "sha256")) for secret in secrets.values if secret]
    return any(hits)


def plain_token(header: str | None, secrets: Secrets) -> bool:
    """Whether the header is one of the secrets, in clear; compared by hash, so that not even a length shows."""
    if not header:
        return False
    given = hashlib.sha256(header.encode("latin-1", "replace")).digest()
    hits = [hmac.compare_digest(given, hashlib.sha256(secret).digest()) for secret in secrets.values if secret]
    return any(hits)


def standard_v1(
    *, delivery: str | None, timestamp: str | None, signature: str | None, raw: RawBody, keys: Secrets, now: float
) -> bool:
    """Whether one `v1,` entry signs `id.timestamp.body` under one of the `whsec_…` keys, within five minutes of now."""
    if not (delivery and timestamp and signature) or not _TIMESTAMP.fullmatch(timestamp):
        return False
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    content = f"{delivery}.{timestamp}.".encode("latin-1") + raw
    wanted = [hmac.digest(key, content, "sha256") for secret in keys.values if (key := signing_key(secret))]
    given = [decoded for entry in signature.split(" ") if (decoded := _entry(entry))]
    hits = [hmac.compare_digest(one, other) for one in given for other in wanted]
    return any(hits)


def signing_key(secret: bytes) -> bytes | None:
    """Return the key of a `whsec_…` secret; None when what follows the prefix is no base64 or empty."""
    text = secret.removeprefix(SIGNING_PREFIX)
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True) or None
    except ValueError:
        return None


def _entry(text: str) -> bytes | None:
    version, _, encoded = text.partition(",")
    if version != "v1":
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        return None
