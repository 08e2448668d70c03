"""No request body but a webhook's is larger than what a person or the command line would send."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gitops_services.access import WEBHOOKS

_LARGEST_BYTES = 256 * 1024


class BoundedBodies:
    """ASGI middleware that stops reading at the limit, whatever length was declared."""

    def __init__(self, app: ASGIApp) -> None:
        """Guard this app."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a body that can't grow beyond the limit."""
        if scope["type"] != "http" or scope["path"].startswith(WEBHOOKS):  # the receiver has limits of its own
            await self._app(scope, receive, send)
            return
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > _LARGEST_BYTES:
                raise HTTPException(
                    413, f"the body is larger than {_LARGEST_BYTES} bytes", headers={"connection": "close"}
                )
            return message

        await self._app(scope, bounded, send)
