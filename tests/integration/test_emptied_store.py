"""A store that forgets everything under a running fleet, or is swapped while it is down; real processes throughout."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from redis import Redis
from redis.exceptions import RedisError

from gitops_reconciler import keys
from gitops_reconciler.cli import main
from gitops_reconciler.layout import Layout
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.store.fleet import FleetState, Pause
from gitops_reconciler.work.base import Cause, ItemSpec
from gitops_reconciler.work.redis import RedisWork
from tests.support.fleet_scenes import KIND
from tests.support.git_repos import GitUpstream
from tests.support.processes import eventually
from tests.support.redis_server import RedisServer, require_redis_binary, running_redis
from tests.support.roles import RoleProcess, Roles, running_roles

START_SECONDS = 90.0
SOON = 45.0
WEB = "default/web"


@dataclass(frozen=True)
class Up:
    """A running `gitops up` with one target, a note that is written to the world."""

    role: RoleProcess
    layout: Layout
    world: Path

    def fetch(self, path: str) -> Any:
        with urlopen(f"{json.loads(self.layout.up_file.read_text())['url']}/api/v1/{path}", timeout=10) as answer:
            return json.loads(answer.read())

    @property
    def status(self) -> str:
        """The target's status; empty while there is none, or nobody to ask."""
        try:
            (item,) = self.fetch("targets")["items"]
        except (OSError, ValueError):
            return ""
        return str(item["status"])

    @contextmanager
    def redis(self) -> Iterator[TextRedis]:
        with Redis.from_url(f"unix://{self.layout.redis_socket}", decode_responses=True) as client:
            yield as_text(client)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    pytest.importorskip("supervisor")
    require_redis_binary()
    root = tmp_path_factory.mktemp("emptied")
    upstream = GitUpstream.create(root, "infra")
    world = root / "world"
    world.mkdir()
    note = f"type: resource\nkind: note\nname: web\ninterval: off\nspec: {{file: {world / 'web'}, text: one}}\n"
    upstream.publish({"gitops/gitops.yaml": "app: test\n", "gitops/note.yaml": KIND, "gitops/web.yaml": note}, "one")
    settings = {"GITOPS_REPO_URL": str(upstream.bare), "GITOPS_GIT_ALLOW_LOCAL": str(root)}
    with running_roles(root / "up", **settings) as roles:
        role = roles.start("gitops_reconciler.cli", "up", "--port", "0", "--no-flower")
        made = Up(role, Layout(roles.folder / "state"), world)
        assert eventually(lambda: made.status == "ready", within=START_SECONDS), role.text()
        yield made


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands find the fleet as a person's do: by its state folder."""
    if "up" in request.fixturenames:
        monkeypatch.setenv("GITOPS_STATE_DIR", str(request.getfixturevalue("up").layout.root))


def alerts(client: TextRedis) -> list[str]:
    return [fields["event"] for _, fields in client.xrange(keys.ALERTS)]


def epoch_on_disk(layout: Layout) -> str:
    return layout.epoch_file.read_text().strip()


def test_the_first_start_is_not_paused_and_neither_is_a_restart_of_the_server(up: Up) -> None:
    with up.redis() as client:
        assert up.fetch("gitops/status")["paused"] is None
        epoch = epoch_on_disk(up.layout)
        assert epoch == client.get(keys.EPOCH)
        (up.world / "web").unlink()
        server = int(client.info("server")["process_id"])
    os.kill(server, signal.SIGKILL)

    def is_another() -> bool:
        try:
            with up.redis() as client:
                return int(client.info("server")["process_id"]) != server
        except RedisError:
            return False

    assert eventually(is_another, within=SOON), up.role.text()
    main(["enqueue", "web"])
    assert eventually((up.world / "web").exists, within=SOON), up.role.text()
    with up.redis() as client:
        assert client.get(keys.EPOCH) == epoch
        assert FleetState(client).pause() is None
        assert "paused" not in alerts(client)


def test_a_store_emptied_under_a_running_fleet_pauses_it_until_a_person_resumes_it(
    up: Up, capsys: pytest.CaptureFixture[str]
) -> None:
    old = epoch_on_disk(up.layout)
    (up.world / "web").unlink()
    with up.redis() as client:
        client.flushall()
        assert eventually(lambda: FleetState(client).pause() is not None, within=SOON), up.role.text()
        assert eventually(lambda: up.status == "pending", within=SOON), "the target came back from its source"

        assert main(["enqueue", "web"]) == 0
        assert eventually(lambda: client.llen("tick.custom") == 0, within=SOON), "a worker has taken the message"
        assert main(["targets"]) == 0
        assert main(["explain", "web"]) == 0
        said = capsys.readouterr()
        assert "the fleet is paused: the store was emptied" in said.err
        assert "The fleet was paused" in said.out
        assert "No target runs until `gitops resume --fleet`." in said.out
        assert not (up.world / "web").exists()
        assert {run["target"] for run in up.fetch("runs")["items"]} == {"source:default"}
        assert alerts(client) == ["paused"]
        assert epoch_on_disk(up.layout) == old

        assert main(["resume", "--fleet", "--reason", "looked at it"]) == 0
        assert eventually((up.world / "web").exists, within=SOON), up.role.text()
        assert eventually(lambda: epoch_on_disk(up.layout) == client.get(keys.EPOCH) != old, within=SOON)
        assert eventually(lambda: up.status == "ready", within=SOON)
        assert alerts(client) == ["paused", "resumed"]
        assert FleetState(client).pause() is None
        assert eventually(lambda: up.role.text().count("fleet resumed: by local: looked at it") == 1, within=SOON)
    assert up.role.text().count("fleet paused: the store was emptied") == 1, "one alert, however many noticed"
    assert main(["resume"]) == 2, "of what?"
    assert main(["resume", "--fleet"]) == 0
    assert "the fleet was not paused" in capsys.readouterr().err


def serving(client: TextRedis) -> bool:
    return bool(client.hgetall(keys.WORKERS))


@contextmanager
def a_worker(folder: Path, server: RedisServer) -> Iterator[tuple[Roles, RoleProcess]]:
    with running_roles(folder, GITOPS_REDIS_URL=server.url, GITOPS_LEASE_GRACE="1s") as roles:
        worker = roles.start("gitops_workers", "worker")
        with Redis.from_url(server.url, decode_responses=True) as client:
            assert eventually(lambda: serving(as_text(client)), within=START_SECONDS), worker.text()
        yield roles, worker
        assert worker.end() == 0


def test_a_host_that_is_led_to_another_store_pauses_that_one_and_a_new_host_does_not(tmp_path: Path) -> None:
    with running_redis() as first, running_redis() as second:
        with a_worker(tmp_path / "host", first) as (roles, _), Redis.from_url(first.url, decode_responses=True) as own:
            layout = roles.settings.layout
            epoch = as_text(own).get(keys.EPOCH)
            assert eventually(lambda: layout.epoch_file.is_file() and epoch_on_disk(layout) == epoch, within=SOON)
        with Redis.from_url(second.url, decode_responses=True) as other:
            client = as_text(other)
            work = RedisWork(other)
            work.register(ItemSpec(item=WEB, kind="x", pool="custom", repository=""), first_due_in_ms=None)
            with a_worker(tmp_path / "new host", second):
                assert client.exists(keys.EPOCH)
                assert FleetState(client).pause() is None
            with a_worker(tmp_path / "host", second) as (_, worker):
                assert eventually(lambda: FleetState(client).pause() is not None, within=SOON), worker.text()
                pause = FleetState(client).pause()
                assert isinstance(pause, Pause)
                assert "the store is another one" in pause.reason
                work.request([WEB], Cause(trigger=Trigger.MANUAL))
                assert eventually(lambda: client.llen("tick.custom") == 0, within=SOON), worker.text()
                assert client.zcard(keys.runs(WEB)) == 0
                assert epoch_on_disk(layout) == epoch
