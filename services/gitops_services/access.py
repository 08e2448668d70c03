"""Who may call what. Every request but webhooks (which carry their own proof) and `healthz` passes here.

Without any token only this machine is served, with all rights; the checks of host and origin keep web pages of other
sites from using a person's browser as that machine. Once there is a token, every caller needs one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from redis.exceptions import RedisError
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gitops_reconciler.store.tokens import Role, Tokens
from gitops_services.outages import Outages
from gitops_services.problems import ProblemError, unavailable
from gitops_services.sessions import SESSION_COOKIE, read_session

OPEN_PATHS = frozenset({"/healthz", "/api/v1/healthz"})
LOGIN_PATH = "/login"
WEBHOOKS = "/webhooks/"
_UNTIL_LOGIN = ("/static/",)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
_FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host", "via", "x-client-ip", "cf-connecting-ip")
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes this request."""

    name: str
    """The token's name; `local` where there are no tokens."""
    role: Role


def caller_of(request: HTTPConnection) -> Caller:
    """Return who makes a request that the gate let pass."""
    caller: Caller | None = request.scope.get("state", {}).get("caller")
    return caller or Caller("", Role.VIEWER)


def require(caller: Caller, role: Role) -> None:
    """Let pass who has the role. Raises a 403 problem."""
    if caller.role < role:
        raise ProblemError(
            403, "forbidden", f"this needs the role {role.label}; the token '{caller.name}' has {caller.role.label}"
        )


def is_loopback(address: str) -> bool:
    """Whether an address is this machine itself."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address == "localhost"
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return (mapped or ip).is_loopback


class Gate:
    """ASGI middleware that finds out who calls, and refuses who may not."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens, outages: Outages) -> None:
        """Guard this app with these tokens."""
        self._app = app
        self._tokens = tokens
        self._outages = outages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http" or scope["path"].startswith(WEBHOOKS) or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        try:
            self._outages.refuse()
            scope.setdefault("state", {})["caller"] = await run_in_threadpool(self._admit, connection)
        except ProblemError as error:
            await _refusal(connection, error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admit(self, request: HTTPConnection) -> Caller | None:
        """Return who calls; None where anybody may. Raises `ProblemError`."""
        self._outages.refuse()  # once more: it may have waited for a thread
        try:
            if not self._tokens.exist():
                return _local(request)
            caller = self._bearer(request)
            if caller is None:
                _refuse_other_sites(request)
                caller = self._session(request)
        except (RedisError, OSError) as error:
            self._outages.note(error)
            raise unavailable() from None
        if caller is None:
            if request.url.path == LOGIN_PATH or request.url.path.startswith(_UNTIL_LOGIN):
                return None
            raise ProblemError(
                401, "unauthorized", "a valid token is needed", headers={"www-authenticate": 'Bearer realm="gitops"'}
            )
        if request.scope["method"] not in _SAFE and request.url.path not in {LOGIN_PATH, "/logout"}:
            require(caller, Role.OPERATOR)  # routes may ask for more
        return caller

    def _bearer(self, request: HTTPConnection) -> Caller | None:
        values = request.headers.getlist("authorization")
        scheme, _, plain = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        token = self._tokens.verify(plain.strip()) if scheme.lower() == "bearer" else None
        return Caller(token.name, token.role) if token else None

    def _session(self, request: HTTPConnection) -> Caller | None:
        value = request.cookies.get(SESSION_COOKIE)
        token = read_session(self._tokens, value) if value else None
        return Caller(token.name, token.role) if token else None


def _local(request: HTTPConnection) -> Caller:
    peer = request.client.host if request.client else ""
    if not is_loopback(peer) or any(name in request.headers for name in _FORWARDED):
        raise ProblemError(
            403, "forbidden", "without any token only this machine is served; make one with `gitops token create`"
        )
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or not _LOOPBACK_HOST.fullmatch(hosts[0]):
        raise ProblemError(
            403, "forbidden", "without any token the server is only reached as localhost, 127.0.0.1 or [::1]"
        )
    _refuse_other_sites(request)
    return Caller(LOCAL, Role.ADMIN)


def _refuse_other_sites(request: HTTPConnection) -> None:
    """Let no page of another site act through a person's browser (CSRF), whatever the browser sends along."""
    if request.scope["method"] in _SAFE:
        return
    site = request.headers.get("sec-fetch-site", "same-origin")
    origins = request.headers.getlist("origin")
    host = request.headers.get("host", "")
    if site not in {"same-origin", "none"} or any(_host_of(origin) != host.lower() for origin in origins):
        raise ProblemError(403, "cross_site", "a page of another site may not do that")


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _refusal(request: HTTPConnection, error: ProblemError) -> Response:
    """Return the problem; a person's browser is sent to the login form instead."""
    wants_page = request.scope["method"] == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status == 401 and wants_page and not request.url.path.startswith("/api/"):  # noqa: PLR2004  # nobody is signed in
        return RedirectResponse(LOGIN_PATH, status_code=303, headers={"cache-control": "no-store"})
    return error.response()


def may_bind(host: str, *, has_token: bool, has_webhook_secret: bool) -> bool:
    """Whether the server may be reached from other machines: something must tell friend from stranger."""
    return is_loopback(host) or has_token or has_webhook_secret
