"""What Celery on Redis does to its users in bad weather, and that it can't happen here.

The letters are the rows of a table of measured failures of other set-ups: T late acknowledgement and prefetching,
K killed processes, R restarts of Redis, W cut connections, H half-open ones, S shutdown (S1 to S3, S7 and S8, SIGTERM
for a worker, its group and its cgroup, are in test_ending.py).
"""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.settings import Settings
from gitops_reconciler.wiring import Fleet
from gitops_reconciler.work.base import Cause
from gitops_workers.app import create_app
from tests.support.processes import eventually, lives
from tests.support.roles import RoleProcess
from tests.support.tcp_proxy import TcpProxy
from tests.support.weather import WITHIN, Weather, bad_weather
from tests.support.weather_worker import HOLD, TRANSPORT, make_runs

ONE_SLOT = {"GITOPS_WORKER_SLOTS": "1"}
HASTY = {TRANSPORT: json.dumps({"visibility_timeout": 1, "unacked_restore_interval": 1, "unacked_restore_throttle": 1})}
"""A broker that would give each unacknowledged message to the next worker after a second."""
LOST = "Connection to broker lost"
LONG_LEASES = {
    "GITOPS_WORKER_SLOTS": "4",
    "GITOPS_LEASE_TTL": "60s",
    "GITOPS_LEASE_RENEWAL": "10s",
    "GITOPS_LEASE_GRACE": "25s",
}
NOT_SERVED = "store does not serve this worker"


@dataclass
class Network:
    """Roles behind a proxy."""

    weather: Weather
    proxy: TcpProxy
    beats: tuple[RoleProcess, RoleProcess]
    worker: RoleProcess

    @property
    def outages(self) -> int:
        """How often the worker said that it is cut off."""
        return sum(self.worker.text().count(words) for words in (LOST, NOT_SERVED))

    def told(self) -> str:
        return "\n".join(role.text() for role in (*self.beats, self.worker))

    def serves(self, name: str) -> None:
        """Assert that an ask by a person and one by the schedule are run once each, by the same worker."""
        asked, due = f"default/{name}", f"default/{name}-due"
        self.weather.ask(asked)
        self.weather.know(due, due_in_ms=100)
        for item in (asked, due):
            assert self.weather.is_ready(item), self.told()
            assert eventually(lambda item=item: self.weather.runs(item) == 1)  # type: ignore[misc]  # a default argument
        assert self.worker.process.poll() is None
        assert "Unrecoverable" not in self.worker.text()
        assert "Traceback" not in self.told()


@pytest.fixture
def weather(tmp_path: Path) -> Iterator[Weather]:
    with bad_weather(tmp_path) as made:
        yield made


def test_t1_to_t5_no_message_is_given_twice_or_waits_behind_a_long_run(weather: Weather) -> None:
    for name in ("a", "b"):
        weather.worker(name, **ONE_SLOT, **HASTY)
    with weather.held():
        weather.ask("default/t-long")
        assert weather.has_run("default/t-long")
        weather.ask("default/t-short")  # T2, T3, T4: it is not kept by the worker that is busy
        assert weather.is_ready("default/t-short")
        weather.ask("default/t-early")  # T5: what is tried again later is no message meanwhile
        assert eventually(lambda: weather.client.zscore(keys.DUE, "default/t-early") is not None, within=WITHIN)
        weather.let_pass(2.5)  # T1: more than twice as long as a message may be unacknowledged
        assert weather.client.keys("unacked*") == []
        assert weather.client.llen("tick.custom") == 0
    assert weather.is_ready("default/t-long")
    for item in ("default/t-long", "default/t-short", "default/t-early"):
        assert (weather.received(item), weather.runs(item)) == (1, 1)


class TestKilled:
    """K rows. There are no pool children: what corresponds is the process of a run, and the worker."""

    @pytest.mark.req("RM.5")
    def test_k1_to_k3_a_killed_run_process_is_written_down_and_tried_again_later_but_not_at_once(
        self, weather: Weather
    ) -> None:
        weather.worker()
        with weather.held():
            weather.ask("default/k-long")
            assert weather.has_run("default/k-long")
            os.kill(weather.run_process("default/k-long"), signal.SIGKILL)
            assert eventually(lambda: weather.view("default/k-long").observed == 1, within=WITHIN)
        run = weather.fleet.store.run(weather.view("default/k-long").last_run)
        assert run is not None
        assert (run.state, run.fields["reason"]) == ("failed", "RunCrashed")
        assert weather.client.zscore(keys.DUE, "default/k-long") is not None
        assert (weather.received("default/k-long"), weather.runs("default/k-long")) == (1, 1)

    def test_k4_to_k6_a_killed_worker_loses_neither_its_run_nor_what_waits_nor_a_message_that_it_had_taken(
        self, weather: Weather
    ) -> None:
        weather.beat()
        worker = weather.worker("a", **ONE_SLOT)
        with weather.held():
            weather.ask("default/k-long")
            assert weather.has_run("default/k-long")
            weather.ask("default/waits")
            weather.ask("default/taken")
            assert worker.end(signal.SIGKILL) == -signal.SIGKILL
            assert weather.client.lpop("tick.custom") is not None  # as if it had been taken, but not claimed
            assert lives(weather.run_process("default/k-long"))
            weather.worker("b", **ONE_SLOT)
            for item in ("default/waits", "default/taken"):
                assert weather.is_ready(item)
        assert weather.is_ready("default/k-long")
        assert weather.runs("default/k-long") == 1


class TestConnectionsLost:
    """R and W rows, with a run under way and a slot free: the worst moment for a connection to go."""

    @pytest.fixture(scope="class")
    @classmethod
    def storm(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Weather, RoleProcess]]:
        with bad_weather(tmp_path_factory.mktemp("storm"), LONG_LEASES) as weather:
            worker = weather.worker(**HASTY)
            with weather.held():
                weather.ask("default/r-long")
                assert weather.has_run("default/r-long")
                yield weather, worker

    def survives(self, storm: tuple[Weather, RoleProcess], row: str) -> None:
        weather, worker = storm
        weather.ask(f"default/{row}")
        assert weather.is_ready(f"default/{row}"), worker.text()
        assert weather.received(f"default/{row}") == weather.runs(f"default/{row}") == 1
        assert (weather.received("default/r-long"), weather.runs("default/r-long")) == (1, 1)
        assert worker.process.poll() is None
        assert "Unrecoverable" not in worker.text()
        assert "Traceback" not in worker.text()

    @pytest.mark.parametrize("time", range(2))
    def test_w1_w2_w5_cut_connections_start_nothing_again(self, storm: tuple[Weather, RoleProcess], time: int) -> None:
        for kind in ("normal", "pubsub"):
            storm[0].fleet.client.client_kill_filter(_type=kind, skipme=True)
        self.survives(storm, f"w{time}")

    @pytest.mark.parametrize("time", range(3))
    def test_r1_to_r4_w6_restarts_of_redis_neither_end_the_worker_nor_start_anything_again(
        self, storm: tuple[Weather, RoleProcess], time: int
    ) -> None:
        storm[0].restart_redis()
        self.survives(storm, f"r{time}")

    def test_r5_a_frozen_redis_is_served_again_as_soon_as_it_thaws(self, storm: tuple[Weather, RoleProcess]) -> None:
        weather, worker = storm
        before = worker.text().count(LOST)
        os.kill(weather.server.pid, signal.SIGSTOP)
        try:  # longer than socket timeouts and health checks: the worker has given its connections up
            assert eventually(lambda: worker.text().count(LOST) > before, within=WITHIN)
        finally:
            os.kill(weather.server.pid, signal.SIGCONT)
        self.survives(storm, "r5")

    def test_s4_to_s6_no_kind_of_end_of_the_worker_kills_a_run_or_gives_its_message_to_another(
        self, storm: tuple[Weather, RoleProcess]
    ) -> None:
        weather, worker = storm
        worker.ask_to_end(signal.SIGQUIT)  # a cold shutdown for Celery, and what a soft one is asked for with
        assert eventually(lambda: "no more work is taken" in worker.text(), within=WITHIN), worker.text()
        weather.let_pass(1.0)
        assert lives(weather.run_process("default/r-long"))
        assert weather.client.llen("tick.custom") == 0
        weather.client.delete(HOLD)
        assert weather.is_ready("default/r-long"), f"{weather.view('default/r-long')} {worker.text()}"
        assert worker.process.wait(WITHIN) == 0
        assert weather.runs("default/r-long") == 1


class TestHalfOpen:
    """H rows: the other end is gone without a word, and the connection looks alive. Beats have the same weather."""

    @pytest.fixture(scope="class")
    @classmethod
    def network(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
        """One worker and two beats behind a proxy."""
        with bad_weather(tmp_path_factory.mktemp("network"), through_proxy=True) as weather:
            assert weather.proxy is not None
            yield Network(weather, weather.proxy, (weather.beat(), weather.beat()), weather.worker())

    def test_h1_connections_that_only_take_are_replaced(self, network: Network) -> None:
        network.proxy.half_close()
        network.serves("h1-half")

    def test_h1_to_h3_half_open_connections_are_replaced_and_no_ask_is_lost_with_them(self, network: Network) -> None:
        assert network.proxy.strand() >= len(network.beats) + 1
        network.serves("h1-open")  # H2: its message may go to a connection whose client is gone

    def test_h2_what_the_network_held_and_delivers_late_is_run_once(self, network: Network) -> None:
        network.proxy.hold()
        network.weather.ask("default/h2-held")
        before = network.outages
        assert eventually(lambda: network.outages > before, within=WITHIN), network.told()
        network.proxy.let_pass()
        assert network.weather.is_ready("default/h2-held"), network.told()
        network.serves("h2")

    @pytest.mark.req("RM.2")
    def test_each_beat_sweeps_again_and_a_frozen_one_is_not_missed(self, network: Network) -> None:
        for number, frozen in enumerate(network.beats):
            os.kill(frozen.pid, signal.SIGSTOP)
            try:
                item = network.weather.know(f"default/beat{number}", due_in_ms=100)
                assert network.weather.has_run(item), network.told()
            finally:
                os.kill(frozen.pid, signal.SIGCONT)
            assert network.weather.is_ready(item)
            assert network.weather.runs(item) == 1

    def test_h4_who_asks_over_a_half_open_connection_to_a_broker_of_its_own_gets_through(
        self, network: Network
    ) -> None:
        weather = network.weather
        broker = network.proxy.url.replace("/0", "/1")
        settings = Settings.model_validate({"redis_url": weather.server.url, "broker_url": broker})
        work = Fleet(settings, create_app(settings, make_runs=make_runs).waker).work
        for name in ("h4-before", "h4-after"):
            weather.know(f"default/{name}")
            work.request([f"default/{name}"], Cause(trigger=Trigger.MANUAL, actor="ann"))
            network.proxy.strand()
        with Redis.from_url(f"{weather.server.url}?db=1") as client:
            assert client.llen("tick.custom") == 2
