"""The console's addresses: the fleet, one target, their live stream, signing in and out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gitops_reconciler.errors import UnknownTargetError
from gitops_services.access import LOCAL, caller_of
from gitops_services.console.live import Pulse, follow
from gitops_services.console.rendering import render
from gitops_services.console.screens import FleetScreen, Lists, Screen, TargetScreen, fleet_query, notices_of
from gitops_services.parts import Parts
from gitops_services.problems import ProblemError
from gitops_services.sessions import (
    CSRF_COOKIE,
    SESSION_COOKIE,
    SESSION_SECONDS,
    csrf_cookie_of,
    csrf_matches,
    make_session,
)
from gitops_services.streams import Streams, stream_response

_log = logging.getLogger(__name__)
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class ConsoleRoutes:
    """Routes of the pages."""

    def __init__(self, parts: Parts, streams: Streams) -> None:
        """Show these parts."""
        self._parts = parts
        self._streams = streams
        self._lists = Lists(parts)
        self._pulse = Pulse(parts.asking)

    def add_to(self, router: APIRouter) -> None:
        """Register the routes."""
        add = router.add_api_route
        add("/", self.fleet, response_class=HTMLResponse)
        add("/targets/{name:path}", self.target, response_class=HTMLResponse)
        add("/live", self.live, response_class=Response)
        add("/login", self.login_form, response_class=HTMLResponse)
        add("/login", self.login, methods=["POST"], response_class=Response)
        add("/logout", self.logout, methods=["POST"], response_class=Response)

    def fleet(self, request: Request) -> Response:
        """The fleet at a glance."""
        screen = self._fleet_screen(request)
        try:
            return _page(request, "fleet.html", screen.values())
        except ValueError:
            return RedirectResponse("/", status_code=303)  # a cursor of another time or list

    def target(self, name: str, request: Request) -> Response:
        """One target."""
        try:
            full = self._parts.store.resolve(name)
        except UnknownTargetError as error:
            return self._no_such_target(request, str(error))
        if full != name:
            return RedirectResponse(f"/targets/{full}", status_code=307)
        values = TargetScreen(parts=self._parts, name=full).values()
        if values is None:
            return self._no_such_target(request, full)
        return _page(request, "target.html", values)

    async def live(self, request: Request) -> Response:
        """The changes of one of the two screens, as server-sent events."""
        self._streams.check()
        name = request.query_params.get("target")
        screen: Screen = TargetScreen(parts=self._parts, name=name) if name else self._fleet_screen(request)
        return stream_response(follow(screen, self._pulse, self._streams))

    def login_form(self, request: Request) -> Response:
        """The form that takes a token."""
        return self._login_page(request)

    async def login(self, request: Request) -> Response:
        """Make a session of a token."""
        fields = await _form(request)
        return await run_in_threadpool(self._login, request, fields)

    def _login(self, request: Request, fields: Mapping[str, str]) -> Response:
        if not csrf_matches(request.cookies.get(CSRF_COOKIE), fields.get("csrf")):
            return self._login_page(request, "The form was too old. Try again.", status=403)
        token = self._parts.tokens.verify(fields.get("token", "").strip())
        if token is None:
            _log.warning("a sign-in was refused: no such token")
            return self._login_page(request, "That is no valid token.", status=401)
        response = RedirectResponse("/", status_code=303, headers=_HEADERS)
        _set_cookie(request, response, SESSION_COOKIE, make_session(token))
        return response

    async def logout(self, request: Request) -> Response:
        """End the session in this browser; revoking the token ends all of them."""
        fields = await _form(request)
        if not csrf_matches(request.cookies.get(CSRF_COOKIE), fields.get("csrf")):
            raise ProblemError(403, "cross_site", "the form was too old or from another site")
        response = RedirectResponse("/login", status_code=303, headers=_HEADERS)
        response.delete_cookie(SESSION_COOKIE, path="/")
        return response

    def _fleet_screen(self, request: Request) -> FleetScreen:
        parameters = {name: request.query_params.getlist(name) for name in request.query_params}
        return FleetScreen(parts=self._parts, lists=self._lists, query=fleet_query(parameters))

    def _no_such_target(self, request: Request, text: str) -> Response:
        values = {"title": "No such target", "text": text, **notices_of(self._parts)}
        return _page(request, "message.html", values, status=404)

    def _login_page(self, request: Request, error: str = "", *, status: int = 200) -> Response:
        return _page(request, "login.html", {"error": error}, status=status)


def _page(request: Request, template: str, values: Mapping[str, Any], *, status: int = 200) -> Response:
    caller = caller_of(request)
    csrf = csrf_cookie_of(request.cookies.get(CSRF_COOKIE))
    shared = {"caller": caller, "signed_in": caller.name not in {"", LOCAL}, "csrf": csrf}
    response = HTMLResponse(render(template, {**values, **shared}), status_code=status, headers=_HEADERS)
    if csrf != request.cookies.get(CSRF_COOKIE):
        _set_cookie(request, response, CSRF_COOKIE, csrf)
    return response


def _set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    response.set_cookie(
        name,
        value,
        max_age=SESSION_SECONDS,
        path="/",
        secure=request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https",
        httponly=True,
        samesite="strict",
    )


async def _form(request: Request) -> Mapping[str, str]:
    """Return the fields of a small form; the last of a name wins."""
    try:
        text = (await request.body()).decode("utf-8")
        return {name: values[-1] for name, values in parse_qs(text, keep_blank_values=True, max_num_fields=8).items()}
    except ValueError:
        raise ProblemError(400, "invalid_request", "the form can't be read") from None
