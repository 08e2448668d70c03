"""One webhook request, step by step, without a server and without Redis."""

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.types import Message

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.work.base import Ask, Cause
from gitops_reconciler.work.redis_async import AsyncRedisWork
from gitops_services.receiver.bodies import Bodies, BodyLimits
from gitops_services.receiver.deliveries import Deliveries, Delivery
from gitops_services.receiver.endpoint import WebhookEndpoint
from gitops_services.receiver.github import GitHub
from gitops_services.receiver.secret_files import SecretFiles
from tests.support.processes import eventually

MIB = 1 << 20


class Noted:
    """Takes deliveries as `Deliveries` does."""

    def __init__(self) -> None:
        self.all: list[Delivery] = []

    def note(self, delivery: Delivery) -> None:
        self.all.append(delivery)


class Away:
    """A store that does not answer."""

    async def push(self, refs: list[str], cause: Cause, *, delivery: str | None) -> list[Ask] | None:
        raise StoreUnavailableError("away")


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def endpoint(tmp_path: Path, noted: Noted) -> WebhookEndpoint:
    (tmp_path / "github").write_bytes(b"secret\n")
    return WebhookEndpoint(
        providers=[GitHub()],
        secrets=SecretFiles(tmp_path),
        bodies=Bodies(BodyLimits(body_bytes=2 * MIB, held_bytes=8 * MIB)),
        work=cast("AsyncRedisWork", Away()),
        deliveries=cast("Deliveries", noted),
    )


def deliver(endpoint: WebhookEndpoint, body: bytes, *headers: tuple[bytes, bytes]) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "path_params": {"provider": "github"},
        "headers": [(b"content-type", b"application/json"), *headers],
    }
    asyncio.run(endpoint(scope, receive, send))
    return sent


@pytest.mark.parametrize("size", [1000, MIB])
def test_a_refused_body_is_let_go_of_at_once(endpoint: WebhookEndpoint, noted: Noted, size: int) -> None:
    # Kept alive by a traceback's cycle, forged deliveries would fill the memory until the collector comes round.
    body = b"x" * size
    gc.disable()
    try:
        before = sys.getrefcount(body)
        sent = deliver(endpoint, body, (b"x-hub-signature-256", b"sha256=" + b"0" * 64))
        assert sent[0]["status"] == 401
        assert eventually(lambda: sys.getrefcount(body) == before), "a thread may be a moment behind"
    finally:
        gc.enable()
    assert [delivery.status for delivery in noted.all] == [401]


def test_a_body_of_a_refused_type_is_not_read(endpoint: WebhookEndpoint) -> None:
    sent = deliver(endpoint, b"{}", (b"content-encoding", b"gzip"))
    assert sent[0]["status"] == 415


def test_a_sender_that_went_away_gets_no_answer(endpoint: WebhookEndpoint) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path_params": {"provider": "github"}, "headers": [(b"content-type", b"application/json")]}
    asyncio.run(endpoint(scope, receive, send))
    assert sent == []
