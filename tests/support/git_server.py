"""Smart-HTTP git server on a loopback port: `git http-backend` behind basic auth, as a forge does it."""

import base64
import contextlib
import hmac
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.git_repos import git_environment


@dataclass(slots=True, kw_only=True)
class GitHttpServer:
    """Serves the repositories below a folder; a test may read the requests and slow the answers down."""

    root: Path
    username: str = "git"
    password: str = "s3cret-of-the-forge"
    port: int = 0
    delay_seconds: float = 0.0
    requests: list[str] = field(default_factory=list)
    """Method and target of each authenticated request, in order."""
    packs: list[str] = field(default_factory=list)
    """Target of each fetch or clone that got objects; a look at the refs does not count."""

    @property
    def base_url(self) -> str:
        """The address without credentials."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, repository: Path) -> str:
        """The address of a repository below the root, without credentials."""
        return f"{self.base_url}/{repository.relative_to(self.root).as_posix()}"

    def url_with_credentials(self, repository: Path) -> str:
        """The address as a careless person writes it."""
        return self.url(repository).replace("://", f"://{self.username}:{self.password}@", 1)

    def authorizes(self, header: str) -> bool:
        """Whether an Authorization header holds the right name and password."""
        expected = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return hmac.compare_digest(header.encode(), f"Basic {expected}".encode())


@contextlib.contextmanager
def running_git_http(root: Path) -> Iterator[GitHttpServer]:
    """A running server for the repositories below a folder."""
    state = GitHttpServer(root=root)
    with _Listener(("127.0.0.1", 0), _Handler) as listener:
        listener.state = state
        state.port = listener.server_port
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            listener.shutdown()
            thread.join()


class _Listener(ThreadingHTTPServer):
    state: GitHttpServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that was killed in the middle is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        """Keep the output of the tests clean."""

    def do_GET(self) -> None:
        """Answer what asks for refs."""
        self._answer()

    def do_POST(self) -> None:
        """Answer what asks for packs or brings them."""
        self._answer()

    def _answer(self) -> None:
        body = self._read_body()
        if not self.server.state.authorizes(self.headers.get("Authorization", "")):
            self._send(HTTPStatus.UNAUTHORIZED, [("WWW-Authenticate", 'Basic realm="git"')], b"")
            return
        self.server.state.requests.append(f"{self.command} {self.path}")
        time.sleep(self.server.state.delay_seconds)
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=self._cgi(body), capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        if self.path.endswith("/git-upload-pack") and b"PACK" in content:
            self.server.state.packs.append(self.path)
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in head.decode().split("\r\n"))]
        status = next((value for name, value in headers if name.lower() == "status"), "200 OK")
        self._send(int(status.split()[0]), [pair for pair in headers if pair[0].lower() != "status"], content)

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _cgi(self, body: bytes) -> dict[str, str]:
        path, _, query = self.path.partition("?")
        return {
            **git_environment(),
            "GIT_PROJECT_ROOT": str(self.server.state.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_USER": self.server.state.username,
            "REMOTE_ADDR": self.client_address[0],
        }

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
