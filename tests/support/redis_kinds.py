"""What a Redis server may be like: behind TLS, with users, with sentinels."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from redis import Redis
from redis.exceptions import RedisError

from tests.support.processes import eventually
from tests.support.redis_server import RedisServer, require_redis_binary, running_redis

LOCALHOST = "127.0.0.1"
START_SECONDS = 30.0
MASTER = "fleet"


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Certificate:
    """A certificate that signs itself, and so is its own CA."""

    certificate: Path
    key: Path

    def server_arguments(self, port: int) -> list[str]:
        """What makes a Redis server speak TLS there."""
        return [
            "--tls-port", str(port), "--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key),
            "--tls-ca-cert-file", str(self.certificate), "--tls-auth-clients", "no",
        ]  # fmt: skip


def make_certificate(folder: Path, name: str) -> Certificate:
    """A new certificate for this machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOCALHOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    made.certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


@dataclass
class ServerWithSentinel:
    """A master, a replica and one sentinel that fails over from one to the other."""

    master: RedisServer
    replica: RedisServer
    ports: dict[str, int]

    @property
    def url(self) -> str:
        """The address for a fleet."""
        return f"sentinel://{LOCALHOST}:{self.ports['sentinel']}/{MASTER}/0"

    def master_port(self) -> int:
        """Where the sentinel sends clients just now."""
        with Redis(LOCALHOST, self.ports["sentinel"], socket_timeout=5) as client:
            return int(client.sentinel_get_master_addr_by_name(MASTER)[1])


@contextlib.contextmanager
def running_sentinel() -> Iterator[ServerWithSentinel]:
    """Three processes, the replica in step with its master."""
    ports = {name: free_port() for name in ("master", "replica", "sentinel")}
    common = ("--save", "", "--bind", LOCALHOST)
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(running_redis([*common, "--port", str(ports["master"])]))
        follow = ["--replicaof", LOCALHOST, str(ports["master"]), "--repl-diskless-sync-delay", "0"]
        replica = stack.enter_context(running_redis([*common, "--port", str(ports["replica"]), *follow]))
        stack.enter_context(_sentinel(ports))
        found = ServerWithSentinel(master, replica, ports)
        with Redis.from_url(replica.url) as client:
            in_step = eventually(lambda: client.info("replication")["master_link_status"] == "up", within=START_SECONDS)
        assert in_step, "the replica found no master"
        with Redis(LOCALHOST, ports["sentinel"]) as client:
            knows = eventually(lambda: len(client.sentinel_slaves(MASTER)) == 1, within=START_SECONDS)
        assert knows, "the sentinel found no replica"
        yield found


@contextlib.contextmanager
def _sentinel(ports: dict[str, int]) -> Iterator[None]:
    folder = Path(tempfile.mkdtemp(prefix="sentinel-"))
    settings = folder / "sentinel.conf"
    settings.write_text(
        f"port {ports['sentinel']}\nbind {LOCALHOST}\ndir {folder}\n"
        f"sentinel monitor {MASTER} {LOCALHOST} {ports['master']} 1\n"
        f"sentinel down-after-milliseconds {MASTER} 1000\n"
        f"sentinel failover-timeout {MASTER} 5000\n"
    )
    with (folder / "log").open("wb") as log:
        command = [str(require_redis_binary()), str(settings), "--sentinel"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        assert eventually(lambda: _answers(ports["sentinel"]), within=START_SECONDS), (folder / "log").read_text()
        yield
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(port: int) -> bool:
    with contextlib.suppress(RedisError, OSError), Redis(LOCALHOST, port, socket_timeout=1) as client:
        return bool(client.ping())
    return False
