"""One webhook request, from its headers to its answer.

A plain ASGI endpoint: the order of its steps is the security of this face, and nothing may read or parse the body
before them. No input makes a 5xx; 503 alone is said on purpose, when an ask could not be written down.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from gitops_reconciler import keys
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.work.base import Answer, Ask, Cause
from gitops_reconciler.work.redis_async import AsyncRedisWork
from gitops_services.receiver.base import Event, EventKind, Headers, MalformedError, Provider, RawBody, Secrets
from gitops_services.receiver.bodies import Bodies, BodyError, DisconnectedError
from gitops_services.receiver.deliveries import ACCEPTED, REJECTED, Deliveries, Delivery
from gitops_services.receiver.parsing import parse_form, parse_json
from gitops_services.receiver.refs import watched_by
from gitops_services.receiver.replies import Reply, refused
from gitops_services.receiver.secret_files import SecretFiles

_log = logging.getLogger(__name__)
_IN_A_THREAD = 128 * 1024  # bytes from which hashing and parsing would be felt by other requests
_REFS_AT_ONCE = 1000
_DELIVERY = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)
_JSON = re.compile(r"application/(json|[a-z0-9.!#$&^_-]+\+json)", re.ASCII)
_FORM = "application/x-www-form-urlencoded"
_WAITING = frozenset({Answer.SUSPENDED, Answer.STALE})
_UNSIGNED = "the delivery is not signed with this endpoint's secret"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a body that was read is not taken."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Knock:
    """A request at an endpoint that exists."""

    endpoint: str
    provider: Provider
    secrets: Secrets
    headers: Headers
    delivery: str | None
    """The sender's id of the delivery; an odd one is replaced by its hash, so that it fits keys, logs and pages."""


class WebhookEndpoint:
    """`POST /webhooks/{provider}` and `/webhooks/{provider}/{id}`."""

    def __init__(
        self,
        *,
        providers: Sequence[Provider],
        secrets: SecretFiles,
        bodies: Bodies,
        work: AsyncRedisWork,
        deliveries: Deliveries,
    ) -> None:
        """Serve these providers."""
        self._providers: Mapping[str, Provider] = {provider.name: provider for provider in providers}
        self._secrets = secrets
        self._bodies = bodies
        self._work = work
        self._deliveries = deliveries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        parameters = scope["path_params"]
        knock = self._knock(parameters["provider"], parameters.get("id", ""), Headers(scope["headers"]))
        if knock is None:
            await refused(404, "not_found", "there is no such endpoint").send(send)
            return
        try:
            reply = await self._answer(knock, receive)
        except DisconnectedError:
            return
        except StoreUnavailableError as error:
            _log.warning("webhook answered 503: %s", error, extra={"endpoint": knock.endpoint})
            reply = refused(
                503, "store_unavailable", "the delivery could not be written down, send it again", retry=True
            )
        await reply.send(send)

    def _knock(self, name: str, endpoint_id: str, headers: Headers) -> _Knock | None:
        provider = self._providers.get(name)
        secrets = self._secrets.of(name, endpoint_id) if provider else None
        if provider is None or secrets is None:
            return None
        endpoint = f"{name}.{endpoint_id}" if endpoint_id else name
        delivery = _fitting(provider.delivery(headers))
        return _Knock(endpoint=endpoint, provider=provider, secrets=secrets, headers=headers, delivery=delivery)

    async def _answer(self, knock: _Knock, receive: Receive) -> Reply:
        try:
            is_form = _is_form(knock)
            async with self._bodies.read(knock.headers, receive) as raw:
                opened = await _open(knock, raw, is_form=is_form)
        except BodyError as error:
            return self._rejected(knock, error.status, error.reason)
        if isinstance(opened, _Refusal):
            return self._rejected(knock, opened.status, opened.reason)
        return await self._follow(knock, opened)

    def _rejected(self, knock: _Knock, status: int, reason: str) -> Reply:
        told = f"{reason}; its body may have been changed by a proxy" if reason == _UNSIGNED else reason
        self._deliveries.note(Delivery(endpoint=knock.endpoint, fate=REJECTED, status=status, answer=told))
        return refused(status, _CODES[status], reason, retry=status == 503, close=status in {408, 413})  # noqa: PLR2004  # the two that end a connection

    async def _follow(self, knock: _Knock, event: Event) -> Reply:
        if event.kind is EventKind.PING:
            return self._accepted(knock, event, Reply(200, {"status": "pong"}))
        if event.kind is EventKind.OTHER:
            return self._accepted(knock, event, _ignored(f"'{event.name}': {event.reason}"))
        refs = watched_by(event)
        if not refs:
            return self._accepted(knock, event, _ignored("only branches and tags are tracked"))
        asks = await self._push(knock, refs, Cause(trigger=Trigger.WEBHOOK, actor=event.actor))
        return self._accepted(knock, event, _reply_of(asks, knock.delivery))

    async def _push(self, knock: _Knock, refs: list[str], cause: Cause) -> list[Ask] | None:
        """Ask for all that watch these refs; in slices, as one push may move thousands of them."""
        marker = f"{knock.endpoint}:{knock.delivery}" if knock.delivery else None
        if len(refs) <= _REFS_AT_ONCE:
            return await self._work.push(refs, cause, delivery=marker)
        found, rest = [], iter(refs)
        for number, part in enumerate(iter(lambda: list(islice(rest, _REFS_AT_ONCE)), [])):
            found.append(await self._work.push(part, cause, delivery=marker and f"{marker}#{number}"))
        asks = [ask for part_asks in found if part_asks for ask in part_asks]
        return None if not asks and None in found else asks

    def _accepted(self, knock: _Knock, event: Event, reply: Reply) -> Reply:
        body = reply.body
        self._deliveries.note(
            Delivery(
                endpoint=knock.endpoint,
                fate=ACCEPTED,
                status=reply.status,
                answer=str(body.get("reason", body["status"])),
                event=event.name,
                delivery=knock.delivery or "",
                targets=int(body.get("targets", 0)),
            )
        )
        return reply


_CODES = {
    400: "malformed",
    401: "unauthorized",
    408: "too_slow",
    413: "too_large",
    415: "unsupported_media_type",
    503: "busy",
}


def _fitting(delivery: str | None) -> str | None:
    if delivery is None or _DELIVERY.fullmatch(delivery):
        return delivery
    return sha256(delivery.encode("latin-1", "replace")).hexdigest()


def _is_form(knock: _Knock) -> bool:
    """Whether the body is a form. Raises `BodyError` for what is never read: packed bodies, other and no types."""
    if knock.headers.all(b"content-encoding"):
        raise BodyError(415, "packed bodies are not taken")
    media_type = (knock.headers.one(b"content-type") or "").partition(";")[0].strip().lower()
    if _JSON.fullmatch(media_type):
        return False
    if media_type == _FORM and knock.provider.takes_forms:
        return True
    raise BodyError(415, "the content type is not taken")


async def _open(knock: _Knock, raw: RawBody, *, is_form: bool) -> Event | _Refusal:
    if len(raw) > _IN_A_THREAD:
        return await run_in_threadpool(_open_now, knock, raw, is_form=is_form)
    return _open_now(knock, raw, is_form=is_form)


def _open_now(knock: _Knock, raw: RawBody, *, is_form: bool) -> Event | _Refusal:
    """Verify first, then parse, then understand.

    Answers a refusal and raises none: the traceback of an exception out of a thread would keep the body alive.
    """
    if not knock.provider.verify(raw, knock.headers, knock.secrets):
        return _Refusal(401, _UNSIGNED)
    try:
        document = parse_form(raw) if is_form else parse_json(raw)
        return knock.provider.read(document, knock.headers)
    except MalformedError as error:
        return _Refusal(400, str(error))


def _ignored(reason: str) -> Reply:
    return Reply(200, {"status": "ignored", "reason": reason})


def _reply_of(asks: list[Ask] | None, delivery: str | None) -> Reply:
    """Return the answer to a push: counts, never names."""
    if asks is None:
        return Reply(200, {"status": "duplicate", "delivery": delivery})
    if not asks:
        return _ignored("no target tracks this repository and ref")
    woken = [ask for ask in asks if ask.answer not in _WAITING]
    if not woken:
        return _ignored("what tracks this repository and ref is suspended or stale; the push is remembered")
    sources = sum(ask.item.startswith(keys.SOURCE_PREFIX) for ask in woken)
    return Reply(202, {"status": "queued", "delivery": delivery, "targets": len(woken) - sources, "sources": sources})
