"""`python -m tests.bench.webhook_server product|bare`: one of the bench's servers, both run as the product is."""

from __future__ import annotations

import hmac
import sys

import redis.asyncio
from fastapi import FastAPI, HTTPException, Request

from gitops_reconciler.logs import set_up_logging
from gitops_reconciler.settings import Settings, load_settings
from gitops_services.app import create_app
from gitops_services.serve import serve
from gitops_services.streams import Streams
from tests.bench.pushes import SECRET


def bare_app(settings: Settings) -> FastAPI:
    """Return the least that a receiver can be: it checks the signature and writes one key."""
    client = redis.asyncio.Redis.from_url(settings.redis_url.get_secret_value() if settings.redis_url else "")
    app = FastAPI()
    app.state.streams = Streams()  # the server closes them when it ends

    @app.post("/webhooks/github", status_code=202)
    async def receive(request: Request) -> dict[str, str]:
        wanted = "sha256=" + hmac.new(SECRET, await request.body(), "sha256").hexdigest()
        if not hmac.compare_digest(wanted, request.headers["x-hub-signature-256"]):
            raise HTTPException(401)
        await client.set(f"bare:{request.headers['x-github-delivery']}", "1", ex=60)
        return {"status": "queued"}

    return app


def main(which: str) -> int:
    """Serve until SIGTERM."""
    settings = load_settings()
    set_up_logging(settings.log_format, settings.log_level)
    return serve(create_app(settings) if which == "product" else bare_app(settings), settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
