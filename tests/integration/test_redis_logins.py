"""A Redis with a password, users and TLS: all roles live with the least of rights, and the password is nowhere."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from urllib.parse import quote

import pytest
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.supervise.procfs import descendants
from tests.support.git_repos import MakeUpstream
from tests.support.processes import eventually
from tests.support.redis_kinds import LOCALHOST, Certificate, free_port, make_certificate
from tests.support.redis_server import RedisServer, running_redis
from tests.support.roles import RoleProcess, Roles, running_roles

DOCS = Path(__file__).parents[2] / "docs" / "redis.md"
WAIT_SECONDS = 60.0
ADMIN = "an-admin-password-0123"
PASSWORD = "p@ss/w:rd-of-the-fleet-4711"  # of a server that lives as long as its test


def documented_acl() -> list[str]:
    """The rules of the user in docs/redis.md, which are so proven to be enough."""
    line = re.search(r"^ACL SETUSER gitops (.*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    return line[1].replace(">PASSWORD", f">{PASSWORD}").split()


@dataclass
class Guarded:
    """A server with TLS and users, and how the fleet reaches it."""

    server: RedisServer
    port: int
    certificate: Certificate

    def url(self, *, password: str = PASSWORD, ca: Path | None = None) -> str:
        login = f"gitops:{quote(password, safe='')}"
        return f"rediss://{login}@{LOCALHOST}:{self.port}/0?ssl_ca_certs={ca or self.certificate.certificate}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    certificate, port = make_certificate(tmp_path_factory.mktemp("tls"), "redis"), free_port()
    arguments = ["--save", "", "--appendonly", "no", "--bind", LOCALHOST, *certificate.server_arguments(port)]
    with running_redis(arguments, password=ADMIN) as server:
        with Redis.from_url(server.url) as admin:
            admin.execute_command("ACL", "SETUSER", "gitops", *documented_acl())
        yield Guarded(server, port, certificate)


@pytest.fixture
def admin(guarded: Guarded) -> Iterator[Redis]:
    """Who may do everything, on an empty server."""
    with Redis.from_url(guarded.server.url, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def client(admin: Redis) -> TextRedis:
    return as_text(admin)


KIND = """\
type: manifest
kind: snoop
schema: {type: object}
scripts:
  apply: |
    env | sort
    cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '
    exit 3
"""


@dataclass
class GuardedFleet:
    """Worker, beat and receiver on the guarded server, with one source of one target."""

    url: str
    """Of the server, for who may do everything."""
    roles: Roles
    worker: RoleProcess
    beat: RoleProcess
    receiver: RoleProcess
    flower: RoleProcess

    def everything(self) -> str:
        """What all of them wrote."""
        return "\n".join(role.text() for role in self.roles.started)


@pytest.fixture
def fleet(
    guarded: Guarded, client: TextRedis, git_upstream: MakeUpstream, git_root: Path, tmp_path: Path
) -> Iterator[GuardedFleet]:
    upstream = git_upstream("infra")
    target = "type: resource\nkind: snoop\nname: web\n"
    upstream.publish({"gitops/gitops.yaml": "app: a\n", "gitops/kind.yaml": KIND, "gitops/web.yaml": target}, "first")
    environ = {
        "GITOPS_REDIS_URL": guarded.url(),
        "GITOPS_REPO_URL": upstream.url,
        "GITOPS_GIT_ALLOW_LOCAL": str(git_root),
        "GITOPS_PORT": "0",
        "GITOPS_LOG_LEVEL": "DEBUG",
    }
    with running_roles(tmp_path / "roles", **environ) as roles:
        yield GuardedFleet(
            guarded.server.url,
            roles,
            roles.start("gitops_workers", "worker", "--name", "w"),
            roles.start("gitops_workers", "beat"),
            roles.start("gitops_services"),
            roles.start("gitops_workers", "flower"),
        )


def address_of(receiver: RoleProcess) -> str:
    """Where it listens."""

    def found() -> str:
        match = re.search(r"listening on (http://\S+)", receiver.text())
        return match[1] if match else ""

    assert eventually(lambda: bool(found()), within=WAIT_SECONDS), receiver.text()
    return found()


def gitops(roles: Roles, *arguments: str, **environ: str) -> RoleProcess:
    """Run a command of the CLI to its end."""
    done = roles.run([sys.executable, "-m", "gitops_reconciler.cli", *arguments], environ=environ)
    done.process.wait(WAIT_SECONDS)
    return done


def test_all_roles_live_behind_tls_with_the_rights_that_the_docs_name_and_the_password_is_nowhere(
    fleet: GuardedFleet, client: TextRedis, admin: Redis
) -> None:
    def is_ready() -> bool:
        return client.hget(keys.item("default/web"), "status") == "ready"

    assert eventually(is_ready, within=WAIT_SECONDS), [*refused(admin), fleet.everything()]
    assert eventually(lambda: client.exists(keys.FLOWER) == 1, within=WAIT_SECONDS), fleet.flower.text()
    server = address_of(fleet.receiver)
    made = gitops(fleet.roles, "token", "create", "ann", "--role", "admin")
    assert made.process.returncode == 0, made.text()
    token = re.search(r"gor_\S+", made.text())
    assert token is not None
    face = {"GITOPS_SERVER": server, "GITOPS_TOKEN": token[0]}
    before = client.hget(keys.item("default/web"), "observed")
    for command in (
        ["targets"],
        ["enqueue", "web", "--wait", "60"],
        ["runs", "web"],
        ["source", "list"],
    ):
        done = gitops(fleet.roles, *command, **face)
        assert done.process.returncode == 0, (command, done.text())
    assert client.hget(keys.item("default/web"), "observed") != before
    assert eventually(lambda: client.xlen(keys.EVENTS) > 2)
    assert refused(admin) == []
    run = client.hget(keys.item("default/web"), "last_run")
    record = client.hgetall(keys.run(run or ""))
    assert "PATH=" in record["log"], record
    seen = [fleet.everything(), str(record), dump(fleet.url), command_lines(fleet)]
    forms = {PASSWORD, quote(PASSWORD, safe=""), ADMIN}
    for form in forms:
        assert not any(form in text for text in seen), next(text for text in seen if form in text)
    assert [role.end() for role in (fleet.flower, fleet.receiver, fleet.beat, fleet.worker)] == [0] * 4, (
        fleet.everything()
    )


def refused(admin: Redis) -> list[str]:
    """What the server did not let anybody do."""
    return [str(entry) for entry in admin.acl_log()]


def dump(url: str) -> str:
    """All that is in the store, as text."""
    with Redis.from_url(url) as client:
        return "\n".join(f"{key!r} {client.dump(key)!r}" for key in client.keys("*"))


def command_lines(fleet: GuardedFleet) -> str:
    """The command lines of the roles and of all that they started."""
    pids = [role.pid for role in fleet.roles.started if role.process.poll() is None]
    below = [process.pid for pid in pids for process in descendants(pid)]
    texts = []
    for pid in [*pids, *below]:
        with suppress(OSError):
            texts.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    assert texts
    return "\n".join(texts)


def one_line(role: RoleProcess) -> str:
    """What a role said that did not start."""
    assert role.process.wait(WAIT_SECONDS) == 2, role.text()
    assert "Traceback" not in role.text()
    assert role.text().count("\n") == 1, role.text()
    return role.text()


def refusals(roles: Roles, url: str) -> dict[str, str]:
    """The one line of each role that refuses to start with this address."""
    environ = {"GITOPS_REDIS_URL": url, "GITOPS_PORT": "0"}
    commands = {
        "worker": ["-m", "gitops_workers", "worker"],
        "beat": ["-m", "gitops_workers", "beat"],
        "receiver": ["-m", "gitops_services"],
        "up": ["-m", "gitops_reconciler.cli", "up"],
    }
    started = {name: roles.run([sys.executable, *command], environ=environ) for name, command in commands.items()}
    return {name: one_line(role) for name, role in started.items()}


def test_a_wrong_password_stops_every_role_with_one_line_that_does_not_repeat_it(
    guarded: Guarded, tmp_path: Path
) -> None:
    with running_roles(tmp_path) as roles:
        for name, line in refusals(roles, guarded.url(password="not-the-password-99")).items():
            assert "redis refuses the login" in line, (name, line)
            assert "not-the-password-99" not in line


def test_a_certificate_of_another_ca_stops_every_role_with_one_line(guarded: Guarded, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other")
    with running_roles(tmp_path / "roles") as roles:
        for name, line in refusals(roles, guarded.url(ca=other.certificate)).items():
            assert "not signed by a CA that is trusted here" in line, (name, line)
            assert quote(PASSWORD, safe="") not in line


def test_a_command_that_reaches_the_store_says_what_is_wrong_with_the_login(guarded: Guarded, tmp_path: Path) -> None:
    with running_roles(tmp_path, GITOPS_REDIS_URL=guarded.url(password="not-the-password-99")) as roles:
        done = gitops(roles, "token", "create", "ann")
        assert done.process.returncode == 3
        assert "redis refuses the login" in done.text()
        assert "not-the-password-99" not in done.text()


class _WebServer(StreamRequestHandler):
    """Answers a login as a web server does."""

    def handle(self) -> None:
        self.request.recv(1024)
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def test_what_is_no_redis_or_speaks_no_tls_stops_a_role_with_one_line(tmp_path: Path) -> None:
    with ThreadingTCPServer((LOCALHOST, 0), _WebServer) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        with running_roles(tmp_path) as roles:
            place = f"{LOCALHOST}:{web.server_address[1]}"
            for url, words in (
                (f"redis://{place}/0", "what answers there is no redis"),
                (f"rediss://{place}/0", "what answers there speaks no TLS"),
            ):
                beat = roles.start("gitops_workers", "beat", environ={"GITOPS_REDIS_URL": url})
                assert words in one_line(beat)
        web.shutdown()


def test_a_host_that_is_not_known_is_said_and_tried_again(tmp_path: Path) -> None:
    with running_roles(tmp_path, GITOPS_REDIS_URL="redis://ann:secret-of-ann@no-such-host.invalid:6379/0") as roles:
        beat = roles.start("gitops_workers", "beat")
        assert eventually(lambda: "is asked for meanwhile" in beat.text(), within=WAIT_SECONDS), beat.text()
        assert "the host of redis is not known here" in beat.text()
        assert "Traceback" not in beat.text()
        assert "secret-of-ann" not in beat.text()
        assert beat.end() == 0
