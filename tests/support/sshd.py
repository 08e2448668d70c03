"""A real sshd on a loopback port that serves git, and nothing else, to one key of the current user."""

import contextlib
import getpass
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import require

START_SECONDS = 10.0
STOP_SECONDS = 10.0
INSTALL = "apt install openssh-server openssh-client"

# Debian's sshd, started as root, insists on this folder, which its service file would make.
_PRIVILEGE_SEPARATION_FOLDER = Path("/run/sshd")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSshServer:
    """What a client needs to reach the server."""

    host: str
    port: int
    user: str
    client_key: Path
    known_hosts: Path

    def url(self, repository: Path) -> str:
        """The address of a repository anywhere on this machine."""
        return f"ssh://{self.user}@{self.host}:{self.port}{repository.absolute().as_posix()}"

    @property
    def ssh_command(self) -> str:
        """A value for GIT_SSH_COMMAND that uses the key and trusts only this host key."""
        options = ("IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "BatchMode=yes")
        files = f"-i {self.client_key} -o UserKnownHostsFile={self.known_hosts}"
        return " ".join(["ssh", "-F", os.devnull, files, *(f"-o {option}" for option in options)])


@contextlib.contextmanager
def running_git_ssh(folder: Path, sshd: Path) -> Iterator[GitSshServer]:
    """A running server whose keys and configuration lie in a folder."""
    server = _prepare(folder, port=_free_port())
    log = folder / "sshd.log"
    command = [str(sshd.resolve()), "-D", "-f", str(folder / "sshd_config"), "-E", str(log)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(server, process, log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _prepare(folder: Path, port: int) -> GitSshServer:
    folder.mkdir(parents=True, exist_ok=True)
    if os.getuid() == 0:
        _PRIVILEGE_SEPARATION_FOLDER.mkdir(mode=0o755, exist_ok=True)
    host_key, client_key = _new_key(folder / "host_key"), _new_key(folder / "client_key")
    server = GitSshServer(
        host="127.0.0.1", port=port, user=getpass.getuser(), client_key=client_key, known_hosts=folder / "known_hosts"
    )
    server.known_hosts.write_text(f"[{server.host}]:{port} {_public(host_key)}\n", encoding="utf-8")
    shell = require("git-shell", "apt install git")
    forced = f'restrict,command="{shell} -c \\"$SSH_ORIGINAL_COMMAND\\""'
    (folder / "authorized_keys").write_text(f"{forced} {_public(client_key)}\n", encoding="utf-8")
    (folder / "sshd_config").write_text(_configuration(folder, server), encoding="utf-8")
    return server


def _new_key(path: Path) -> Path:
    keygen = require("ssh-keygen", INSTALL)
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path], check=True)
    return path


def _public(key: Path) -> str:
    return key.with_name(f"{key.name}.pub").read_text(encoding="utf-8").strip()


def _configuration(folder: Path, server: GitSshServer) -> str:
    lines = [
        f"ListenAddress {server.host}:{server.port}",
        f"HostKey {folder / 'host_key'}",
        f"AuthorizedKeysFile {folder / 'authorized_keys'}",
        f"AllowUsers {server.user}",
        "AcceptEnv GIT_PROTOCOL",
        "AuthenticationMethods publickey",
        "PermitRootLogin forced-commands-only",
        "PidFile none",
        "StrictModes no",
        "UseDNS no",
        "UsePAM no",
    ]
    return "\n".join(lines) + "\n"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(server: GitSshServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection((server.host, server.port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(encoding="utf-8") if log.exists() else "it said nothing"
            raise RuntimeError(f"sshd did not start: {said[-2000:]}")
        time.sleep(0.02)
