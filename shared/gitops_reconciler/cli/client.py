"""The API's client: urllib, bounded waits, no redirects (a token must not follow one), errors in our own words."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from gitops_reconciler.cli.exits import RefusedError, ServerUnreachableError
from gitops_reconciler.errors import ReconcileError, SettingsError
from gitops_reconciler.settings import Settings

_TIMEOUT_SECONDS = 30.0
_LARGEST_ANSWER = 64 << 20
_API = "/api/v1"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_AWAY = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_REFUSED = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.GONE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the API is, and the token it is asked with."""

    url: str
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The body of an answer, as it came."""

    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            message = "the server's answer is no JSON: is it a gitops server?"
            raise ReconcileError(message) from error


def read_up_file(path: Path) -> Mapping[str, Any] | None:
    """Return what the running `gitops up` says of itself; None when none runs."""
    try:
        said = json.loads(path.read_bytes())
        is_alive = _is_alive(int(said["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return said if is_alive else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def find_server(settings: Settings, *, server: str | None, token_file: Path | None) -> Server:
    """Return the server that was named, else the one of the `gitops up` that runs on this state folder.

    Raises:
        ServerUnreachableError: none was named, and none runs.
        SettingsError: its address, or the token file, can't be used.

    """
    token = _token(settings, token_file)
    named = server or settings.server
    if named is not None:
        return Server(url=_checked(named), token=token)
    up = read_up_file(settings.layout.up_file)
    if up is None:
        message = (
            f"no server: no `gitops up` runs on {settings.layout.root}, and neither --server nor GITOPS_SERVER is set"
        )
        raise ServerUnreachableError(message)
    own = up.get("token_file")
    return Server(url=_checked(str(up["url"])), token=token or (_read_token(Path(own)) if own else None))


def _token(settings: Settings, token_file: Path | None) -> str | None:
    if token_file is None:
        return settings.token.get_secret_value() if settings.token else None
    return _read_token(token_file)


def _read_token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        message = f"the token file {file} can't be read: {why}"
        raise SettingsError(message) from error


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        message = f"'{url}' is no server address (for example http://127.0.0.1:8420, or https://gitops.example.org)"
        raise SettingsError(message)
    return url.rstrip("/")


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Client:
    """Asks one server; every method returns the answer or raises a `GitopsError` that says what is wrong."""

    def __init__(self, server: Server) -> None:
        """Ask this server."""
        self._server = server
        self._opener = _opener(server.url)

    def get(self, path: str, query: Sequence[tuple[str, str]] = ()) -> Answer:
        """Read."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Ask for something."""
        return self._ask("POST", path, body or {})

    def delete(self, path: str) -> Answer:
        """Remove."""
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        request = Request(f"{self._server.url}{_API}/{path}", method=method)  # noqa: S310  # the scheme was checked
        request.add_header("Accept", "application/json")
        if self._server.token:
            request.add_header("Authorization", f"Bearer {self._server.token}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                return Answer(body=response.read(_LARGEST_ANSWER))
        except HTTPError as error:
            with error:
                raise _problem(error, self._server) from error
        except (URLError, HTTPException, OSError) as error:
            why = error.reason if isinstance(error, URLError) else error
            why = getattr(why, "strerror", None) or why
            message = f"{self._server.url} does not answer ({why}); is `gitops up` running, is the address right?"
            raise ServerUnreachableError(message) from error


def _opener(url: str) -> OpenerDirector:
    """Return an opener that follows no redirect and uses no proxy for this machine itself."""
    if urlsplit(url).hostname in _LOOPBACK:
        return build_opener(_NoRedirects, ProxyHandler({}))
    return build_opener(_NoRedirects)


def _problem(error: HTTPError, server: Server) -> Exception:
    """Return what the server answered as an error of ours."""
    message = _message_of(error)
    if error.code in _AWAY:
        return ServerUnreachableError(f"{server.url}: {message}")
    if error.code in _REFUSED:
        return RefusedError(message)
    if error.code == HTTPStatus.UNAUTHORIZED:
        hint = "the token is not known" if server.token else "it wants a token: set GITOPS_TOKEN or --token-file"
        return ReconcileError(f"{server.url} refused: {hint} (`gitops token create` makes one)")
    if error.code == HTTPStatus.FORBIDDEN:
        return ReconcileError(f"{server.url} refused: {message}")
    return ReconcileError(f"{server.url} answered {error.code}: {message}")


def _message_of(error: HTTPError) -> str:
    try:
        said = json.loads(error.read(_LARGEST_ANSWER))
        return str(said.get("message") or said["detail"])
    except (ValueError, KeyError, AttributeError, OSError):
        return str(error.reason)


def path_of(*parts: str) -> str:
    """Return a path of the API; a target's name keeps its slash."""
    return "/".join(quote(part, safe="/:") for part in parts)
