"""Workers that are asked to end, one by one or all of a fleet in turn: nothing is lost, doubled or left waiting."""

import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.sources import SourceRegistration, register_source
from gitops_reconciler.supervise.procfs import descendants
from gitops_reconciler.wiring import Fleet
from gitops_reconciler.work.base import Answer, Cause, ItemSpec
from gitops_workers.messages import tick_queue
from tests.support.git_repos import MakeUpstream
from tests.support.processes import eventually, lives
from tests.support.redis_server import RedisServer, running_redis
from tests.support.roles import RoleProcess, Roles, running_roles
from tests.support.worker_app import HOLD, LEDGER, RAN, SECONDS, STOPPED

NOTED = "tests.support.worker_app"
BOUND = 60.0
ASK = Cause(trigger=Trigger.MANUAL, actor="ann")
KIND = """\
type: manifest
kind: slow
schema: {type: object, required: [log, hold], properties: {log: {type: string}, hold: {type: string}}}
timeout: 600s
scripts:
  apply: |
    echo begin >> "$SPEC_LOG"
    while [ -e "$SPEC_HOLD" ]; do sleep 0.1; done
    sleep 0.3
    echo end >> "$SPEC_LOG"
    exit 3
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as started:
        yield started


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that this test may do away with; its workers use it."""
    with running_redis() as started:
        yield started


@pytest.fixture
def url(server: RedisServer, request: pytest.FixtureRequest) -> str:
    own: RedisServer | None = request.getfixturevalue("own_server") if "own_server" in request.fixturenames else None
    return (own or server).url


@pytest.fixture
def fleet(url: str) -> Fleet:
    fleet = Fleet(Roles(Path(), {"GITOPS_REDIS_URL": url}).settings)
    fleet.client.flushall()
    return fleet


@pytest.fixture
def client(fleet: Fleet) -> TextRedis:
    return as_text(fleet.client)


@pytest.fixture
def roles(url: str, client: TextRedis, tmp_path: Path) -> Iterator[Roles]:
    times = {"GITOPS_LEASE_TTL": "6s", "GITOPS_LEASE_RENEWAL": "1s", "GITOPS_LEASE_GRACE": "1s"}
    with running_roles(tmp_path / "roles", GITOPS_REDIS_URL=url, **times) as started:
        yield started


def await_sign(client: TextRedis, name: str, worker: RoleProcess) -> RoleProcess:
    def lives() -> bool:
        return any(entry.startswith(f"{name}@") for entry in client.hgetall(keys.WORKERS))

    assert eventually(lives, within=BOUND), worker.text()
    return worker


def know(fleet: Fleet, count: int) -> list[str]:
    names = [f"default/target-{number:03d}" for number in range(count)]
    for name in names:
        spec = ItemSpec(item=name, kind="x", pool="custom", repository="")
        fleet.work.register(spec, first_due_in_ms=None)
    return names


@dataclass
class Requests:
    """A stream of requests, and what was answered to them."""

    fleet: Fleet
    items: list[str]
    pause_seconds: float
    made: int = 0
    answers: Counter[Answer] = field(default_factory=Counter)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Ask for one item after the other while the body runs."""
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.wait(self.pause_seconds):
                (answer,) = self.fleet.work.request([self.items[self.made % len(self.items)]], ASK)
                self.answers[answer.answer] += 1
                self.made += 1

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def are_all_served(self) -> bool:
        """Whether a run that began after the last request of each item has ended."""
        views = [self.fleet.client.hgetall(keys.item(item)) for item in self.items]
        return all(view.get("requested") == view.get("observed") for view in views)


STUCK = """\
import sys, threading
from gitops_workers.lifetime import leave_at_signal

class Slow:
    def __del__(self):
        for _ in range(100_000):
            pass

leave_at_signal(lambda: print("farewell", flush=True))
threading.Thread(target=threading.Event().wait).start()
print("ready", flush=True)
while True:
    Slow()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_beat_and_flower_end_at_a_signal_wherever_their_threads_are(roles: Roles, number: signal.Signals) -> None:
    """An exception out of a handler would be lost in a destructor, and a thread that waits would be waited for."""
    role = roles.run([sys.executable, "-c", STUCK])
    assert eventually(lambda: "ready" in role.text(), within=BOUND), role.text()
    assert role.end(number) == 0
    assert role.text().split() == ["ready", "farewell"]


def test_a_message_that_was_taken_but_not_begun_lies_in_its_queue_again(
    roles: Roles, fleet: Fleet, client: TextRedis
) -> None:
    """There is no beat here that could find a lost one."""
    requests = Requests(fleet, know(fleet, 300), pause_seconds=0.0)
    for _ in range(3):
        worker = await_sign(client, "w", roles.start(NOTED, "w", environ={"GITOPS_WORKER_SLOTS": "2"}))
        with requests.streaming():
            seen = client.llen(RAN)
            assert eventually(lambda seen=seen: client.llen(RAN) > seen + 50, within=BOUND), worker.text()  # type: ignore[misc]  # a default argument
            assert worker.end() == 0
        assert client.zcard(keys.LEASES) == 0
        assert client.llen(tick_queue("custom")) == client.zcard(keys.QUEUED), worker.text()


def test_a_worker_that_waits_for_its_runs_keeps_no_message_from_others(
    roles: Roles, fleet: Fleet, client: TextRedis
) -> None:
    first, *others = know(fleet, 100)
    client.set(HOLD, "1")
    worker = await_sign(client, "w", roles.start(NOTED, "w", environ={"GITOPS_WORKER_GRACE": "10m"}))
    fleet.work.request([first], ASK)
    assert eventually(lambda: client.llen(RAN) == 1, within=BOUND), worker.text()
    worker.ask_to_end()
    assert eventually(lambda: "no more work is taken" in worker.text(), within=BOUND)
    fleet.work.request(others, ASK)
    assert eventually(lambda: client.llen(tick_queue("custom")) == len(others), within=BOUND)
    assert worker.process.poll() is None
    assert client.llen(RAN) == 1
    client.delete(HOLD)
    assert worker.process.wait(BOUND) == 0
    assert client.llen(tick_queue("custom")) == client.zcard(keys.QUEUED) == len(others)


def test_a_fleet_restarted_in_turn_under_a_stream_of_requests_loses_and_doubles_nothing(
    roles: Roles, fleet: Fleet, client: TextRedis
) -> None:
    client.set(SECONDS, "0.02")
    environ = {"GITOPS_WORKER_SLOTS": "4", "GITOPS_WORKER_GRACE": "30s"}
    names = ["one", "two", "three"]
    workers = {name: roles.start(NOTED, name, environ=environ) for name in names}
    beat = roles.start("gitops_workers", "beat")
    for name in names:
        await_sign(client, name, workers[name])
    requests = Requests(fleet, know(fleet, 40), pause_seconds=0.002)
    with requests.streaming():
        for name in names:
            before = client.llen(RAN)
            assert workers[name].end() == 0
            workers[name] = await_sign(client, name, roles.start(NOTED, name, environ=environ))
            assert eventually(lambda before=before: client.llen(RAN) > before, within=BOUND)  # type: ignore[misc]  # a default argument
    assert eventually(requests.are_all_served, within=BOUND), beat.text()
    assert client.lrange(STOPPED, 0, -1) == []
    check_ledger(client.lrange(LEDGER, 0, -1))
    runs = client.llen(RAN)
    # A group of requests that were coalesced is one run: the first of it was queued, or came while another one ran.
    assert (
        requests.answers[Answer.QUEUED] <= runs <= requests.answers[Answer.QUEUED] + requests.answers[Answer.DEFERRED]
    )
    assert requests.made == requests.answers.total()


def check_ledger(lines: list[str]) -> None:
    """No two runs of an item at once, and each for a generation of its own."""
    running: dict[str, str] = {}
    last: dict[str, int] = {}
    for line in lines:
        what, item, generation = line.split()
        if what == "begin":
            assert item not in running, f"two runs of {item} at once"
            assert int(generation) > last.get(item, 0), f"{item} was run twice for generation {generation}"
            running[item], last[item] = generation, int(generation)
        else:
            assert running.pop(item) == generation
    assert running == {}


@dataclass
class Real:
    """Targets of a declared kind, run by the whole chain: warm server, guard, supervisor, run process, tools."""

    fleet: Fleet
    folder: Path
    items: list[str]

    @property
    def hold(self) -> Path:
        """While it is there, runs do not end by themselves."""
        return self.folder / "hold"

    def log(self, item: str) -> list[str]:
        path = self.folder / item.removeprefix("default/")
        return path.read_text().split() if path.exists() else []

    def records(self, item: str) -> list[dict[str, str]]:
        """The records of its runs, the first one first."""
        client = as_text(self.fleet.client)
        return [client.hgetall(keys.run(run)) for run in client.zrange(keys.runs(item), 0, -1)]

    def status(self, item: str) -> dict[str, str]:
        return as_text(self.fleet.client).hgetall(keys.item(item))


@pytest.fixture
def real(fleet: Fleet, roles: Roles, git_upstream: MakeUpstream, git_root: Path, tmp_path: Path) -> Real:
    """Three targets, known after a first sync whose worker has ended by then; nothing is asked for."""
    folder = tmp_path / "logs"
    folder.mkdir()
    upstream = git_upstream("infra")
    documents: dict[str, str | None] = {"gitops/gitops.yaml": "app: test\n", "gitops/kind.yaml": KIND}
    for name in ("one", "two", "three"):
        spec = f"{{log: {folder / name}, hold: {folder / 'hold'}}}"
        documents[f"gitops/{name}.yaml"] = f"type: resource\nkind: slow\nname: {name}\ninterval: off\nspec: {spec}\n"
    upstream.publish(documents, "slow ones")
    roles.environ = {**roles.environ, "GITOPS_GIT_ALLOW_LOCAL": str(git_root)}
    source = SourceRegistration(name="default", repo=upstream.url, interval=0)
    register_source(fleet.store, fleet.work, source, roles.settings)
    return Real(fleet, folder, [f"default/{name}" for name in ("one", "two", "three")])


def start_real(roles: Roles, client: TextRedis, name: str, **environ: str) -> RoleProcess:
    # Of a session of its own, as under systemd: its group is no more than what belongs to it.
    command = ["setsid", sys.executable, "-m", "gitops_workers", "worker", "--name", name]
    return await_sign(client, name, roles.run(command, environ=environ))


def start_held(roles: Roles, client: TextRedis, real: Real, **environ: str) -> RoleProcess:
    """Start a worker all of whose three runs are under way and do not end by themselves."""
    real.hold.touch()
    worker = start_real(roles, client, "w", **environ)
    assert eventually(lambda: all(real.log(item) == ["begin"] for item in real.items), within=BOUND), worker.text()
    return worker


def signal_all(worker: RoleProcess, whom: str) -> set[int]:
    """Send SIGTERM as a service manager does; answers all that there was."""
    everything = {process.pid for process in descendants(worker.pid)}
    if whom == "group":
        os.killpg(worker.pid, signal.SIGTERM)
    else:
        for pid in [worker.pid, *(sorted(everything) if whom == "cgroup" else [])]:
            with suppress(ProcessLookupError):  # tools come and go
                os.kill(pid, signal.SIGTERM)
    return everything


@pytest.mark.parametrize("whom", ["worker", "group", "cgroup"])
def test_runs_that_do_not_end_are_interrupted_and_each_writes_its_end(
    roles: Roles, client: TextRedis, real: Real, whom: str
) -> None:
    worker = start_held(roles, client, real, GITOPS_WORKER_GRACE="1s")
    everything = signal_all(worker, whom)
    assert worker.process.wait(BOUND) == 0, worker.text()
    assert eventually(lambda: not any(lives(pid) for pid in everything), within=BOUND)
    assert client.zcard(keys.LEASES) == 0, "nobody has to wait for a lease to expire"
    for item in real.items:
        (record,) = real.records(item)
        assert (record["state"], record["reason"]) in {("aborted", "Interrupted"), ("failed", "ApplyFailed")}, record
        assert record["ended_at"]
        assert real.status(item)["status"] != "running"
    if whom != "cgroup":  # there the tools of a run get the signal too, and the end is that of a failed apply
        assert {real.records(item)[0]["state"] for item in real.items} == {"aborted"}
        assert all(client.zscore(keys.DUE, item) is not None for item in real.items), "interrupted is tried again"


def test_runs_that_end_within_the_grace_are_not_interrupted(roles: Roles, client: TextRedis, real: Real) -> None:
    worker = start_held(roles, client, real, GITOPS_WORKER_GRACE="10m")
    worker.ask_to_end()
    assert eventually(lambda: "no more work is taken" in worker.text(), within=BOUND)
    real.fleet.work.request(real.items[:1], ASK)  # while it ends, and for whoever comes next
    real.hold.unlink()
    assert worker.process.wait(BOUND) == 0
    assert [record["state"] for item in real.items for record in real.records(item)] == ["changed"] * 3
    assert client.zcard(keys.LEASES) == 0
    assert client.llen(tick_queue("custom")) == 1
    start_real(roles, client, "w")
    assert eventually(lambda: real.log(real.items[0]) == ["begin", "end"] * 2, within=BOUND)


def test_a_worker_whose_store_was_killed_ends_and_so_do_its_runs(
    own_server: RedisServer, roles: Roles, client: TextRedis, real: Real
) -> None:
    worker = start_held(roles, client, real)
    everything = {process.pid for process in descendants(worker.pid)}
    own_server.stop(signal.SIGKILL)
    assert worker.end() == 0, worker.text()
    assert eventually(lambda: not any(lives(pid) for pid in everything), within=BOUND)


def test_a_worker_whose_store_is_frozen_ends(own_server: RedisServer, roles: Roles, client: TextRedis) -> None:
    worker = start_real(roles, client, "w")
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        assert worker.end() == 0, worker.text()
    finally:
        os.kill(own_server.pid, signal.SIGCONT)


def test_real_runs_go_on_over_a_rolling_restart_and_none_is_interrupted(
    roles: Roles, client: TextRedis, real: Real
) -> None:
    environ = {"GITOPS_WORKER_SLOTS": "2", "GITOPS_WORKER_GRACE": "60s"}
    beat = roles.start("gitops_workers", "beat")
    workers = {name: start_real(roles, client, name, **environ) for name in ("one", "two")}
    assert eventually(lambda: all(map(real.log, real.items)), within=BOUND)
    requests = Requests(real.fleet, real.items, pause_seconds=0.05)
    with requests.streaming():
        for name in ("one", "two"):
            before = [len(real.log(item)) for item in real.items]
            assert workers[name].end() == 0
            workers[name] = start_real(roles, client, name, **environ)

            def all_went_on(before: list[int] = before) -> bool:
                return all(len(real.log(item)) > count + 2 for item, count in zip(real.items, before, strict=True))

            assert eventually(all_went_on, within=BOUND), workers[name].text()
    assert eventually(requests.are_all_served, within=BOUND), beat.text()
    for item in real.items:
        records = real.records(item)
        assert {record["state"] for record in records} == {"changed"}
        generations = [int(record["generation"]) for record in records]
        assert generations == sorted(set(generations)), "each run served requests of its own"
        assert real.log(item) == ["begin", "end"] * len(records), "never two at once, and none that was cut off"
    assert not re.findall(r"interrupted|lost", "".join(worker.text() for worker in roles.started if worker is not beat))
