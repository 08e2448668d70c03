"""Worker, beat and Flower as real processes on a real server."""

import base64
import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.wiring import Fleet
from gitops_reconciler.work.base import Answer, Cause, ItemSpec
from gitops_workers.app import create_app
from tests.support.processes import eventually
from tests.support.redis_server import RedisServer, running_redis
from tests.support.roles import RoleProcess, Roles, running_roles
from tests.support.worker_app import HOLD, RAN, STOPPED, NotedRuns

WORKER = "tests.support.worker_app"
START_SECONDS = 30.0
END_SECONDS = 45.0
ASK = Cause(trigger=Trigger.MANUAL, actor="ann")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as started:
        yield started


@pytest.fixture
def client(server: RedisServer) -> TextRedis:
    client = as_text(Fleet(Roles(Path(), {"GITOPS_REDIS_URL": server.url}).settings).client)
    client.flushall()
    return client


@pytest.fixture
def roles(server: RedisServer, client: TextRedis, tmp_path: Path) -> Iterator[Roles]:
    environ = {"GITOPS_REDIS_URL": server.url, "GITOPS_WORKER_SLOTS": "4"}
    with running_roles(tmp_path / "roles", **environ) as started:
        yield started


def start_worker(roles: Roles, client: TextRedis, name: str = "w", **environ: str) -> RoleProcess:
    """Start a worker with simple runs and wait until it says that it lives."""
    worker = roles.start(WORKER, name, environ=environ)

    def lives() -> bool:
        return any(entry.startswith(f"{name}@") for entry in client.hgetall(keys.WORKERS))

    assert eventually(lives, within=START_SECONDS), worker.text()
    return worker


def know(fleet: Fleet, item: str, pool: str = "custom", *, due_in_ms: int | None = None) -> None:
    fleet.work.register(ItemSpec(item=item, kind="x", pool=pool, repository=""), first_due_in_ms=due_in_ms)


def ran(client: TextRedis) -> list[str]:
    return client.lrange(RAN, 0, -1)


def test_an_ask_is_run_by_a_worker_of_its_pool(roles: Roles, client: TextRedis) -> None:
    fleet = Fleet(roles.settings)
    worker = start_worker(roles, client, GITOPS_POOLS="terraform,custom")
    know(fleet, "default/web", "terraform")
    know(fleet, "default/site", "custom")
    know(fleet, "default/other", "ansible")
    fleet.work.request(["default/web", "default/site", "default/other"], ASK)
    assert eventually(lambda: len(ran(client)) == 2), worker.text()
    assert sorted(ran(client)) == ["default/site", "default/web"]
    assert client.llen("tick.ansible") == 1
    assert worker.end() == 0


@pytest.mark.req("RM.5")
def test_targets_run_side_by_side_and_a_long_one_keeps_no_other_waiting(roles: Roles, client: TextRedis) -> None:
    worker = start_held_run(roles, client)
    fleet = Fleet(roles.settings)
    for item in ("default/site", "default/shop"):
        know(fleet, item)
    fleet.work.request(["default/site", "default/shop"], ASK)
    assert eventually(lambda: len(ran(client)) == 3), worker.text()
    client.delete(HOLD)


def test_a_worker_says_what_it_serves_and_is_silent_once_it_ended(roles: Roles, client: TextRedis) -> None:
    worker = start_worker(roles, client)
    ((name, text),) = client.hgetall(keys.WORKERS).items()
    said = json.loads(text)
    assert name == said["name"] == f"w@{socket.gethostname()}"
    assert said["pid"] == worker.pid
    assert {"terraform", "ansible", "custom", "source"} <= set(said["pools"])
    assert (said["slots"], said["busy"], said["channels"]) == (4, 0, ["log"])
    first = said["at"]
    assert eventually(lambda: json.loads(client.hgetall(keys.WORKERS)[name])["at"] > first, within=10)
    assert worker.end() == 0
    assert client.hgetall(keys.WORKERS) == {}


def test_a_pool_that_comes_later_is_served_within_seconds(roles: Roles, client: TextRedis) -> None:
    fleet = Fleet(roles.settings)
    worker = start_worker(roles, client)
    know(fleet, "default/web", "lab")
    fleet.work.request(["default/web"], ASK)
    assert eventually(lambda: ran(client) == ["default/web"]), worker.text()


@pytest.mark.req("RM.7")
def test_a_failure_is_told_in_the_log_once_when_there_is_no_channel(roles: Roles, client: TextRedis) -> None:
    fleet = Fleet(roles.settings)
    worker = start_worker(roles, client)
    know(fleet, "default/web-fails")
    for runs in (1, 2):
        fleet.work.request(["default/web-fails"], ASK)
        assert eventually(lambda runs=runs: len(ran(client)) == runs)  # type: ignore[misc]  # a default argument
    group = keys.notifier_group("log")

    def all_read() -> bool:
        (row,) = client.xinfo_groups(keys.ALERTS)
        return bool((row["name"], row["lag"], row["pending"]) == (group, 0, 0))

    assert eventually(all_read)
    alerts = re.findall(r"error .*default/web-fails failed: as asked", worker.text())
    assert len(alerts) == 1


def test_a_run_that_ends_within_the_grace_is_not_interrupted_by_the_end_of_its_worker(
    roles: Roles, client: TextRedis
) -> None:
    worker = start_held_run(roles, client, GITOPS_WORKER_GRACE="120s")
    worker.ask_to_end()
    assert eventually(lambda: "no more work is taken" in worker.text(), within=START_SECONDS)
    client.delete(HOLD)
    assert worker.process.wait(END_SECONDS) == 0
    assert client.lrange(STOPPED, 0, -1) == []
    assert client.hgetall(keys.item("default/web"))["status"] == "ready"


def test_a_run_that_does_not_end_is_interrupted_after_the_grace(roles: Roles, client: TextRedis) -> None:
    worker = start_held_run(roles, client, GITOPS_WORKER_GRACE="1s")
    assert worker.end() == 0
    assert client.lrange(STOPPED, 0, -1) == ["default/web"]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_asked_twice_a_worker_interrupts_its_runs_at_once(
    roles: Roles, client: TextRedis, first: signal.Signals, second: signal.Signals
) -> None:
    worker = start_held_run(roles, client, GITOPS_WORKER_GRACE="10m")
    worker.ask_to_end(first)
    assert eventually(lambda: "no more work is taken" in worker.text(), within=START_SECONDS)
    worker.ask_to_end(second)
    assert worker.process.wait(END_SECONDS) == 0
    assert client.lrange(STOPPED, 0, -1) == ["default/web"]
    assert client.zcard(keys.LEASES) == 0


def start_held_run(roles: Roles, client: TextRedis, **environ: str) -> RoleProcess:
    """Start a worker with a run under way that does not end by itself."""
    worker = start_worker(roles, client, **environ)
    fleet = Fleet(roles.settings)
    client.set(HOLD, "1")
    know(fleet, "default/web")
    fleet.work.request(["default/web"], ASK)
    assert eventually(lambda: ran(client) == ["default/web"]), worker.text()
    return worker


@pytest.mark.req("RM.2")
def test_beat_asks_for_what_is_due_and_leaves_no_file_where_it_was_started(
    roles: Roles, client: TextRedis, tmp_path: Path
) -> None:
    start_worker(roles, client)
    folder = tmp_path / "cwd"
    folder.mkdir()
    beats = [roles.start("gitops_workers", "beat", cwd=folder) for _ in range(2)]
    assert eventually(lambda: bool(client.hgetall(keys.SWEPT)), within=START_SECONDS), beats[0].text()
    know(Fleet(roles.settings), "default/web", due_in_ms=100)
    assert eventually(lambda: ran(client) == ["default/web"]), beats[0].text()
    assert [beat.end() for beat in beats] == [0, 0]
    assert ran(client) == ["default/web"]
    assert list(folder.iterdir()) == []


def test_beat_drops_workers_that_were_silent_for_a_minute(roles: Roles, client: TextRedis) -> None:
    seconds = client.time()[0]
    client.hset(keys.WORKERS, "gone@host", json.dumps({"at": (seconds - 61) * 1000}))
    client.hset(keys.WORKERS, "broken@host", "no json")
    client.hset(keys.WORKERS, "late@host", json.dumps({"at": (seconds - 30) * 1000}))
    roles.start("gitops_workers", "beat")
    assert eventually(lambda: set(client.hgetall(keys.WORKERS)) == {"late@host"}, within=START_SECONDS)


def test_beat_wakes_the_notifier_whose_message_was_lost(roles: Roles, client: TextRedis) -> None:
    worker = start_worker(roles, client)
    client.xadd(keys.ALERTS, {"event": "failed", "item": "default/web", "message": "unheard", "at": "1"})
    roles.start("gitops_workers", "beat")
    assert eventually(lambda: "default/web failed: unheard" in worker.text(), within=START_SECONDS), worker.text()


def test_worker_and_beat_go_on_after_the_server_was_away(tmp_path: Path) -> None:
    kept = ("--save", "", "--appendonly", "yes")  # an emptied store would pause the fleet
    with running_redis(kept) as server, running_roles(tmp_path / "roles", GITOPS_REDIS_URL=server.url) as roles:
        fleet = Fleet(roles.settings)
        client = as_text(fleet.client)
        worker = start_worker(roles, client)
        beat = roles.start("gitops_workers", "beat")
        assert eventually(lambda: bool(client.hgetall(keys.SWEPT)), within=START_SECONDS)
        server.stop(signal.SIGKILL)
        assert eventually(lambda: "is asked for meanwhile" in beat.text(), within=START_SECONDS)
        server.start()
        know(fleet, "default/web", due_in_ms=100)
        assert eventually(lambda: ran(client) == ["default/web"], within=START_SECONDS), worker.text() + beat.text()
        assert beat.text().count("is asked for meanwhile") == 1
        assert beat.text().count("sweeps work again") == 1
        assert eventually(lambda: bool(client.hgetall(keys.WORKERS)))


def test_a_broker_of_its_own_gets_the_messages_through_celery(roles: Roles, client: TextRedis) -> None:
    broker = f"{roles.environ['GITOPS_REDIS_URL']}?db=1"
    worker = start_worker(roles, client, GITOPS_BROKER_URL=broker)
    elsewhere = Roles(roles.folder, {**roles.environ, "GITOPS_BROKER_URL": broker})
    fleet = create_app(elsewhere.settings, make_runs=NotedRuns).fleet
    know(fleet, "default/web", "lab")
    (ask,) = fleet.work.request(["default/web"], ASK)
    assert ask.answer is Answer.QUEUED
    assert eventually(lambda: ran(client) == ["default/web"]), worker.text()
    assert client.llen("tick.lab") == 0


def test_a_broker_that_is_away_does_not_fail_who_asks(roles: Roles, client: TextRedis, tmp_path: Path) -> None:
    elsewhere = Roles(roles.folder, {**roles.environ, "GITOPS_BROKER_URL": f"unix://{tmp_path}/no.sock"})
    fleet = create_app(elsewhere.settings, make_runs=NotedRuns).fleet
    know(fleet, "default/web")
    (ask,) = fleet.work.request(["default/web"], ASK)
    assert ask.answer is Answer.QUEUED


def test_wrong_settings_stop_a_role_with_one_line(roles: Roles) -> None:
    worker = roles.start("gitops_workers", "worker", environ={"GITOPS_LEASE_GRACE": "50s"})
    assert worker.process.wait(START_SECONDS) == 2
    assert worker.text().splitlines() == [worker.text().strip()]
    assert "GITOPS_LEASE_GRACE" in worker.text()


class Flower:
    """Flower as a browser sees it."""

    def __init__(self, port: int, password: str) -> None:
        self._port = port
        self._login = base64.b64encode(f"gitops:{password}".encode()).decode()

    def get(self, path: str, *, with_password: bool = True) -> tuple[int, str]:
        request = Request(f"http://127.0.0.1:{self._port}{path}")
        if with_password:
            request.add_header("authorization", f"Basic {self._login}")
        try:
            with urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, ""

    def tasks(self) -> dict[str, str]:
        """State by `name args`."""
        found = json.loads(self.get("/api/tasks")[1])
        return {f"{task['name']} {task['args']}": task["state"] for task in found.values()}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.req("RM.8")
def test_flower_shows_ticks_by_name_and_target_behind_a_password_and_events_flow_only_meanwhile(
    roles: Roles, client: TextRedis, tmp_path: Path
) -> None:
    pytest.importorskip("flower")
    worker, port, folder = start_worker(roles, client), free_port(), tmp_path / "cwd"
    folder.mkdir()
    (folder / "flowerconfig.py").write_text("raise SystemExit('the folder decides what runs')")
    role = roles.start("gitops_workers", "flower", "--port", str(port), cwd=folder)
    assert eventually(lambda: accepts(port), within=START_SECONDS), role.text()
    secret = roles.settings.layout.flower_password
    assert secret.stat().st_mode & 0o777 == 0o600
    flower = Flower(port, secret.read_text().strip())
    assert flower.get("/tasks", with_password=False)[0] == 401
    assert flower.get("/api/tasks", with_password=False)[0] == 401
    page = flower.get("/tasks")[1]
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', page)

    assert eventually(lambda: client.exists(keys.FLOWER) == 1)
    fleet = Fleet(roles.settings)
    know(fleet, "default/web")

    def is_shown() -> bool:
        fleet.work.request(["default/web"], ASK)
        return flower.tasks().get("gitops.tick ('default/web',)") == "SUCCESS"

    assert eventually(is_shown, within=15), flower.tasks()
    assert role.end() == 0
    assert client.exists(keys.FLOWER) == 0
    assert worker.end() == 0
