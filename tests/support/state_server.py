"""Servers of Terraform state on loopback ports: an http one that locks as GitLab's does, and a small S3.

The S3 knows no signatures. What it has of S3 is what the s3 backend relies on: reads that see the last write, and a
write that is refused when the object is there already (`If-None-Match: *`), which is what the lock is made of.
"""

import contextlib
import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "states"
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_REGION": "eu-west-1"}


@dataclass(slots=True, kw_only=True)
class StateServer(ABC):
    """What a test sees of it; `objects` and `locks` may be changed while it runs."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    """What is stored, by path; for S3 its lock files too."""
    requests: list[str] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    backend = ""
    env: dict[str, str] = field(default_factory=dict)
    """What the engine needs in its environment."""

    @abstractmethod
    def configuration(self) -> str:
        """The `terraform` block of a module that keeps its state here."""

    @property
    @abstractmethod
    def lock(self) -> dict[str, str] | None:
        """The lock of the one state, as its holder described it."""

    @abstractmethod
    def set_lock(self, lock: dict[str, str] | None) -> None:
        """Take the lock, whoever has it, or free it."""


@dataclass(slots=True, kw_only=True)
class HttpState(StateServer):
    """Terraform's `http` backend: LOCK is refused with 423 and the holder, UNLOCK of another lock with 409.

    An UNLOCK that does not say which one frees any lock, since that is what `force-unlock` sends.
    """

    swap: dict[str, str] | None = None
    """Takes the place of the lock right before the next UNLOCK: somebody was quicker."""

    def configuration(self) -> str:
        names = ("address", "lock_address", "unlock_address")
        lines = "".join(f'    {name} = "{self.url}/state"\n' for name in names)
        return f'terraform {{\n  backend "http" {{\n{lines}  }}\n}}\n'

    @property
    def lock(self) -> dict[str, str] | None:
        return _decoded(self.objects.get("lock"))

    def set_lock(self, lock: dict[str, str] | None) -> None:
        _store(self.objects, "lock", lock)


@dataclass(slots=True, kw_only=True)
class S3State(StateServer):
    """The `s3` backend with `use_lockfile`."""

    env: dict[str, str] = field(default_factory=lambda: dict(_CREDENTIALS))

    def configuration(self) -> str:
        skips = ("credentials_validation", "requesting_account_id", "metadata_api_check", "region_validation")
        flags = "".join(f"    skip_{name} = true\n" for name in skips)
        return (
            f'terraform {{\n  backend "s3" {{\n    bucket = "{BUCKET}"\n    key = "state"\n    use_lockfile = true\n'
            f'    use_path_style = true\n    endpoints = {{ s3 = "{self.url}" }}\n{flags}  }}\n}}\n'
        )

    @property
    def lock(self) -> dict[str, str] | None:
        return _decoded(self.objects.get(f"/{BUCKET}/state.tflock"))

    def set_lock(self, lock: dict[str, str] | None) -> None:
        _store(self.objects, f"/{BUCKET}/state.tflock", lock)


def _decoded(lock: bytes | None) -> dict[str, str] | None:
    found: dict[str, str] | None = None if lock is None else json.loads(lock)
    return found


def _store(objects: dict[str, bytes], name: str, lock: dict[str, str] | None) -> None:
    if lock is None:
        objects.pop(name, None)
    else:
        objects[name] = json.dumps(lock).encode()


@contextlib.contextmanager
def running_state_server(state: StateServer) -> Iterator[StateServer]:
    """The server, running."""
    handler = _HttpHandler if isinstance(state, HttpState) else _S3Handler
    with _Listener(("127.0.0.1", 0), handler) as listener:
        listener.state = state
        state.url = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            listener.shutdown()
            thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    state: StateServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients are killed here."""


class _Handler(BaseHTTPRequestHandler, ABC):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        """Keep the output of the tests clean."""

    def answer(self, status: HTTPStatus, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return _without_chunks(body) if "aws-chunked" in self.headers.get("Content-Encoding", "") else body

    def handle_one(self) -> None:
        body, url = self.body(), urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        with self.server.state.guard:
            self.server.state.requests.append(f"{self.command} {url.path}")
            self.act(unquote(url.path), query, body, self.server.state.objects)

    @abstractmethod
    def act(self, path: str, query: dict[str, str], body: bytes, objects: dict[str, bytes]) -> None:
        """Answer one request."""

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_LOCK = do_UNLOCK = handle_one  # noqa: N815  # the base class calls them so


class _HttpHandler(_Handler):
    def act(self, path: str, query: dict[str, str], body: bytes, objects: dict[str, bytes]) -> None:
        state = self.server.state
        if self.command == "UNLOCK" and isinstance(state, HttpState) and state.swap is not None:
            state.set_lock(state.swap)
            state.swap = None
        held: dict[str, Any] = json.loads(objects.get("lock", b"{}"))
        asked = json.loads(body or b"{}").get("ID", held.get("ID")) if self.command == "UNLOCK" else query.get("ID")
        is_refused = bool(held) and (self.command == "LOCK" or asked != held["ID"])
        match self.command:
            case "GET":
                self.answer(HTTPStatus.OK if path in objects else HTTPStatus.NOT_FOUND, objects.get(path, b""))
            case "LOCK" | "UNLOCK" | "POST" if is_refused:
                status = HTTPStatus.LOCKED if self.command == "LOCK" else HTTPStatus.CONFLICT
                self.answer(status, objects["lock"])
            case "LOCK":
                objects["lock"] = body
                self.answer(HTTPStatus.OK)
            case "UNLOCK":
                objects.pop("lock", None)
                self.answer(HTTPStatus.OK)
            case "POST":
                objects[path] = body
                self.answer(HTTPStatus.OK)


class _S3Handler(_Handler):
    def act(self, path: str, query: dict[str, str], body: bytes, objects: dict[str, bytes]) -> None:
        match self.command:
            case "GET" if "list-type" in query:
                self._list(query.get("prefix", ""), objects)
            case "GET" | "HEAD" if path in objects:
                self.answer(HTTPStatus.OK, objects[path], ETag=_etag(objects[path]))
            case "GET" | "HEAD":
                self._refuse(HTTPStatus.NOT_FOUND, "NoSuchKey")
            case "PUT" if self.headers.get("If-None-Match") == "*" and path in objects:
                self._refuse(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")
            case "PUT":
                objects[path] = body
                self.answer(HTTPStatus.OK, ETag=_etag(body))
            case "DELETE":
                objects.pop(path, None)
                self.answer(HTTPStatus.NO_CONTENT)

    def _list(self, prefix: str, objects: dict[str, bytes]) -> None:
        start = f"/{BUCKET}/"
        keys = [path.removeprefix(start) for path in objects if path.startswith(start + prefix)]
        listed = "".join(f"<Contents><Key>{escape(key)}</Key></Contents>" for key in keys)
        self.answer(HTTPStatus.OK, f"<ListBucketResult>{listed}</ListBucketResult>".encode())

    def _refuse(self, status: HTTPStatus, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _without_chunks(body: bytes) -> bytes:
    """Undo `aws-chunked`: a size in hexadecimal before each chunk, trailers after the empty one."""
    plain = b""
    while body:
        head, _, rest = body.partition(b"\r\n")
        size = int(head.partition(b";")[0], 16)
        if size == 0:
            break
        plain, body = plain + rest[:size], rest[size + 2 :]
    return plain
