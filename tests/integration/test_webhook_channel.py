"""The webhook channel against a real HTTP server."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gitops_reconciler.clock import SystemClock
from gitops_reconciler.errors import AlertRefusedError, DeliveryError
from gitops_reconciler.notify.base import Alert
from gitops_reconciler.notify.webhook import WebhookChannel
from gitops_reconciler.secrets import ReferencedSecrets

KEY = b"0123456789abcdef0123456789abcdef"
ALERT = Alert(
    key="default/web:broken",
    event="failed",
    target="default/web",
    kind="terraform",
    reason="ApplyFailed",
    message="exit 1: „ä“",
    run="0" * 32,
    revision="a" * 40,
    at=datetime(2026, 11, 29, tzinfo=UTC),
)


@dataclass
class Receiver:
    """Takes posts; answers as it is told to."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    drip_seconds: float = 0.0
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/T0/s3cret?token=s3cret"


@contextmanager
def running(receiver: Receiver) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.posts.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            end = time.monotonic() + receiver.drip_seconds
            while time.monotonic() < end and not gone.wait(0.05):
                self.wfile.write(b"H")
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

    gone = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who hung up is what we test
        receiver.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield receiver
        finally:
            gone.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running(Receiver()) as started:
        yield started


@pytest.fixture
def secrets(tmp_path: Path, receiver: Receiver) -> ReferencedSecrets:
    (tmp_path / "chat").write_text(receiver.url + "\n")
    (tmp_path / "key").write_text("whsec_" + base64.b64encode(KEY).decode() + "\n")
    return ReferencedSecrets(folder=tmp_path, environ={})


@pytest.fixture
def channel(secrets: ReferencedSecrets) -> WebhookChannel:
    return WebhookChannel(
        name="file:chat", place="file:chat", secret="file:key", secrets=secrets, clock=SystemClock(),
        step_seconds=0.5, whole_seconds=1.0,
    )  # fmt: skip


def test_an_alert_is_posted_as_json_and_signed_as_standard_webhooks_has_it(
    channel: WebhookChannel, receiver: Receiver
) -> None:
    channel.send(ALERT)
    ((path, headers, body),) = receiver.posts
    assert path == "/T0/s3cret?token=s3cret"
    assert headers["content-type"] == "application/json"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    assert json.loads(body) == {
        "event": "failed",
        "target": "default/web",
        "kind": "terraform",
        "reason": "ApplyFailed",
        "message": "exit 1: „ä“",
        "run": "0" * 32,
        "revision": "a" * 40,
        "at": "2026-11-29T00:00:00+00:00",
        "key": "default/web:broken",
    }


def test_an_alert_that_comes_twice_has_the_same_id(channel: WebhookChannel, receiver: Receiver) -> None:
    channel.send(ALERT)
    channel.send(ALERT)
    assert len({headers["webhook-id"] for _, headers, _ in receiver.posts}) == 1


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_any_other_answer_means_that_it_was_not_taken(channel: WebhookChannel, receiver: Receiver, status: int) -> None:
    receiver.status = status
    with pytest.raises(DeliveryError, match=f"file:chat.*{status}") as caught:
        channel.send(ALERT)
    assert not isinstance(caught.value, AlertRefusedError)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_alert_that_makes_no_sense_to_the_other_side_is_told_apart(
    channel: WebhookChannel, receiver: Receiver, status: int
) -> None:
    receiver.status = status
    with pytest.raises(AlertRefusedError):
        channel.send(ALERT)


def test_a_redirect_is_not_followed_so_that_nobody_is_sent_what_was_signed_for_another(
    channel: WebhookChannel, receiver: Receiver
) -> None:
    with running(Receiver()) as other:
        receiver.status, receiver.headers = 307, {"location": other.url}
        with pytest.raises(DeliveryError, match="redirect"):
            channel.send(ALERT)
        assert other.posts == []


def test_a_server_that_answers_byte_by_byte_is_given_up_as_a_whole(channel: WebhookChannel, receiver: Receiver) -> None:
    receiver.drip_seconds = 20
    began = time.monotonic()
    with pytest.raises(DeliveryError, match="file:chat"):
        channel.send(ALERT)
    assert time.monotonic() - began < 5


def test_nobody_there_is_told_without_the_address(channel: WebhookChannel, tmp_path: Path) -> None:
    (tmp_path / "chat").write_text("http://127.0.0.1:1/s3cret")
    with pytest.raises(DeliveryError, match="Connection refused") as caught:
        channel.send(ALERT)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
