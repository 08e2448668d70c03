"""What a webhook's sender is told: short, uniform, without a hint of what exists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Send

from gitops_services.problems import MEDIA_TYPE, RETRY_AFTER_SECONDS, problem_body

_PLAIN = b"application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    status: int
    body: Mapping[str, Any]
    media_type: bytes = _PLAIN
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def send(self, send: Send) -> None:
        """Send it."""
        content = json.dumps(self.body).encode()
        headers = [
            (b"content-type", self.media_type),
            (b"content-length", str(len(content)).encode()),
            (b"cache-control", b"no-store"),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def refused(status: int, code: str, reason: str, *, retry: bool = False, close: bool = False) -> Reply:
    """Return the answer to what is not taken; `close` where the rest of the body is not worth reading."""
    headers = [(b"retry-after", str(RETRY_AFTER_SECONDS).encode())] if retry else []
    if close:
        headers.append((b"connection", b"close"))
    return Reply(status, problem_body(status, code, reason), MEDIA_TYPE.encode(), tuple(headers))
