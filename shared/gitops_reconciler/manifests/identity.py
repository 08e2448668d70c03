"""What a document is known by: its id, and the hash of its content."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

from gitops_reconciler.layout import DEFAULT_SOURCE

_LARGEST_EXACT = 1 << 53


def document_id(path: str, source: str = DEFAULT_SOURCE) -> str:
    """Return the id that a path has (R4.25): UUID v5 in the DNS namespace, of `source:path` beyond source `default`."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, path if source == DEFAULT_SOURCE else f"{source}:{path}"))


def explicit_id(text: str) -> str:
    """Return a `metadata.id` in its one form.

    Raises:
        ValueError: it is no UUID of 36 characters.

    """
    message = "must be a UUID, as in 6ba7b810-9dad-41d1-80b4-00c04fd430c8"
    try:
        parsed = str(uuid.UUID(text))
    except ValueError:
        raise ValueError(message) from None
    if parsed != text.lower():
        raise ValueError(message)
    return parsed


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: keys sorted, no spaces, `1.0` as `1`; the order of keys never matters."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_EXACT:
        return int(value)
    return value
