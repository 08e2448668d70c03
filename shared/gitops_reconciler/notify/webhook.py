"""The generic channel: a POST of JSON, signed as Standard Webhooks has it (www.standardwebhooks.com).

The address of a webhook is mostly its password, so it comes by reference and stands in no message of ours.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from urllib.parse import SplitResult, unquote, urlsplit

from gitops_reconciler.clock import Clock
from gitops_reconciler.errors import AlertRefusedError, DeliveryError, SecretError
from gitops_reconciler.notify.base import Alert
from gitops_reconciler.secrets import Secrets, is_reference

_LARGEST_ANSWER = 64 << 10
_SECRET_PREFIX = "whsec_"  # noqa: S105  # how Standard Webhooks marks a secret in base64
_REFUSALS = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChannel:
    """One webhook; implements `Channel`."""

    name: str
    """What errors call it."""
    place: str
    """A reference to the URL; in plain only for a host that is this machine."""
    secret: str | None
    """A reference to what requests are signed with; None: they go unsigned."""
    secrets: Secrets
    clock: Clock
    step_seconds: float = 5.0
    """For each of its steps: to connect, to send, to hear something."""
    whole_seconds: float = 10.0

    def send(self, alert: Alert) -> None:
        """Post the alert once; an answer of 2xx means that it was taken.

        Raises:
            DeliveryError: it was not; the message names the channel and never its address.
            AlertRefusedError: the other side can't make sense of this very alert.

        """
        url = self._url()
        body = json.dumps(_payload(alert), separators=(",", ":"), ensure_ascii=False).encode()
        status = self._post(url, body, self._headers(alert, body))
        if status in _REFUSALS:
            raise AlertRefusedError(f"webhook '{self.name}' refused the alert with {status}")
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            what = "redirects, which are not followed" if status < HTTPStatus.BAD_REQUEST else f"answered {status}"
            raise DeliveryError(f"webhook '{self.name}' {what}")

    def _url(self) -> SplitResult:
        try:
            text = self.secrets.resolve(self.place) if is_reference(self.place) else self.place
            url = urlsplit(text.strip())
            port = url.port
        except SecretError as error:
            raise DeliveryError(str(error)) from error
        except ValueError:
            raise DeliveryError(f"webhook '{self.name}': what it refers to is no URL") from None
        if url.scheme not in {"http", "https"} or not url.hostname or port == 0:
            raise DeliveryError(f"webhook '{self.name}': what it refers to is no http or https URL")
        if not is_reference(self.place) and not is_loopback(url.hostname):
            raise DeliveryError(
                f"webhook '{self.name}': a URL that leaves this machine must be given by reference "
                "(file:NAME or env:GITOPS_SECRET_NAME), since whoever knows it can post there"
            )
        return url

    def _headers(self, alert: Alert, body: bytes) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "user-agent": "gitops-reconciler",
            "webhook-id": message_id(alert),
            "webhook-timestamp": str(int(self.clock.now().timestamp())),
        }
        if self.secret is not None:
            key = self._key(self.secret)
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            headers["webhook-signature"] = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        return headers

    def _key(self, reference: str) -> bytes:
        """Return the bytes to sign with: `whsec_…` is base64, anything else is taken as it is."""
        try:
            secret = self.secrets.resolve(reference)
            if secret.startswith(_SECRET_PREFIX):
                return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
        except SecretError as error:
            raise DeliveryError(f"webhook '{self.name}': {error}") from error
        except binascii.Error:
            raise DeliveryError(f"webhook '{self.name}': secret '{reference}' is no base64 after 'whsec_'") from None
        return secret.encode("utf-8", "surrogateescape")

    def _post(self, url: SplitResult, body: bytes, headers: Mapping[str, str]) -> int:
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        login = {"authorization": _basic(url)} if url.username else {}
        try:
            with (
                closing(_connection(url, self.step_seconds)) as connection,
                _ended_in_time(connection, self.whole_seconds),
            ):
                connection.request("POST", path, body=body, headers={**headers, **login})
                answer = connection.getresponse()
                answer.read(_LARGEST_ANSWER)
                return answer.status
        except (OSError, HTTPException, ValueError) as error:
            raise DeliveryError(f"webhook '{self.name}' was not reached: {_cause(error)}") from None


def message_id(alert: Alert) -> str:
    """Return the id by which a receiver recognises an alert that comes twice."""
    parts = (alert.key, alert.event, alert.run, alert.at.isoformat())
    return "msg_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def is_loopback(host: str) -> bool:
    """Whether a host of a URL can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _payload(alert: Alert) -> dict[str, str]:
    return {
        "event": alert.event,
        "target": alert.target,
        "kind": alert.kind,
        "reason": alert.reason,
        "message": alert.message,
        "run": alert.run,
        "revision": alert.revision,
        "at": alert.at.isoformat(),
        "key": alert.key,
    }


def _basic(url: SplitResult) -> str:
    login = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
    return "Basic " + base64.b64encode(login.encode()).decode()


def _connection(url: SplitResult, seconds: float) -> HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "https":
        return HTTPSConnection(host, url.port, timeout=seconds, context=ssl.create_default_context())
    return HTTPConnection(host, url.port, timeout=seconds)


@contextmanager
def _ended_in_time(connection: HTTPConnection, seconds: float) -> Iterator[None]:
    """End a conversation that takes too long as a whole, though each of its steps is in time."""
    connection.connect()
    watch = threading.Timer(seconds, _shut, [connection.sock])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _cause(error: Exception) -> str:
    """Return what went wrong without what it went wrong with: texts of errors may hold the address."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not trusted"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
