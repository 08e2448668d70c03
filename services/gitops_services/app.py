"""The one web application of a fleet: receiver, API and console behind one gate."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.settings import Settings
from gitops_services.access import Gate
from gitops_services.api.routes import PREFIX, build_api, build_probes
from gitops_services.bounds import BoundedBodies
from gitops_services.console.routes import build_console, build_static
from gitops_services.parts import Parts, open_parts
from gitops_services.problems import ProblemError, problem, unavailable
from gitops_services.receiver.routes import build_receiver
from gitops_services.streams import Streams

_log = logging.getLogger(__name__)
_DESCRIPTION = """
Targets of a fleet, what their runs did, and asks for more. Errors are RFC 9457 problems with a stable `code`.
Lists are `{items, next}`: pass `next` as `after` for the next page. Once there is a token, every call needs
`Authorization: Bearer gor_…`; without any, only this machine is served.
"""
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def create_app(settings: Settings) -> FastAPI:
    """Return the application. Nothing is connected before the first request.

    Raises:
        SettingsError: no store is set.

    """
    parts, streams = open_parts(settings), Streams()
    receiver = build_receiver(settings, parts.asking, parts.async_work, parts.webhook_secrets)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        streams.closing.set()
        await receiver.deliveries.close()
        await parts.close()

    app = FastAPI(
        title="gitops-reconciler",
        description=_DESCRIPTION,
        version="1",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # a redirect would say so to whoever asks, and no forge follows one
        lifespan=lifespan,
    )
    app.state.parts, app.state.streams = parts, streams
    app.router.routes.extend(receiver.routes)  # first: the one face whose rate counts
    app.include_router(build_api(parts, streams))
    app.include_router(build_probes(parts))
    app.include_router(build_console(parts, streams))
    app.mount("/static", build_static())
    app.add_middleware(Gate, tokens=parts.tokens, outages=parts.outages)
    app.add_middleware(BoundedBodies)
    _answer_errors(app)
    return app


def parts_of(app: FastAPI) -> Parts:
    """Return what an application works with."""
    parts: Parts = app.state.parts
    return parts


def streams_of(app: FastAPI) -> Streams:
    """Return an application's open event streams."""
    streams: Streams = app.state.streams
    return streams


def _answer_errors(app: FastAPI) -> None:
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(RedisError, _store)
    app.add_exception_handler(StoreUnavailableError, _store)
    app.add_exception_handler(Exception, _bug)


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)  # registered for this class alone
    return error.response()


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # registered for this class alone
    code = _CODES.get(error.status_code, "invalid_request")
    return problem(error.status_code, code, str(error.detail), headers=error.headers)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # registered for this class alone
    found = [{"location": ".".join(map(str, one["loc"])), "message": _told(one)} for one in error.errors()]
    summary = "; ".join(f"{one['location']}: {one['message']}" for one in found)
    return problem(422, "invalid_request", summary, errors=found)


def _told(one: dict[str, Any]) -> str:
    return str(one.get("msg", "")).removeprefix("Value error, ")


async def _store(request: Request, error: Exception) -> Response:
    parts_of(request.app).outages.note(error)
    _log.warning("a request was answered 503: %s", trouble(error))
    return unavailable(error).response()


async def _bug(request: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error, extra={"path": request.url.path})
    return problem(500, "internal_error", "the request failed; the server's log says why")
