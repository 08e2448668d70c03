"""The Celery application: what must never change, and how little its tasks do."""

import pytest

from gitops_reconciler import keys
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.settings import Settings
from gitops_reconciler.work.redis import Waker
from gitops_workers.app import FleetApp, create_app, worker_queues
from gitops_workers.messages import BUILT_IN_POOLS


class CountedRuns:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.items: list[str] = []

    def run(self, item: str) -> None:
        self.items.append(item)

    def wind_down(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def runs() -> CountedRuns:
    return CountedRuns()


def make_app(runs: CountedRuns, **fields: object) -> FleetApp:
    def make_runs(_settings: Settings, _waker: Waker | None) -> CountedRuns:
        return runs

    settings = Settings.model_validate({"redis_url": "unix:///nowhere/redis.sock", **fields})
    return create_app(settings, make_runs=make_runs)


def test_a_tick_message_runs_the_item_that_it_names_and_nothing_else(runs: CountedRuns) -> None:
    app = make_app(runs)
    app.tasks[keys.TICK_TASK].run("default/web")
    assert runs.items == ["default/web"]


def test_errors_that_we_expect_are_told_in_one_line_without_a_traceback(runs: CountedRuns) -> None:
    app = make_app(runs)
    for name in (keys.TICK_TASK, keys.NOTIFY_TASK):
        assert issubclass(StoreUnavailableError, app.tasks[name].throws)


def test_no_message_is_restored_and_none_is_acknowledged_late(runs: CountedRuns) -> None:
    conf = make_app(runs).conf
    assert conf.task_acks_late is False
    assert conf.broker_transport_options["ack_emulation"] is False
    assert conf.worker_disable_prefetch is True
    assert conf.worker_prefetch_multiplier == 1


def test_only_json_is_read_and_no_result_is_written(runs: CountedRuns) -> None:
    conf = make_app(runs).conf
    assert conf.accept_content == conf.result_accept_content == ["json"]
    assert conf.task_ignore_result is True
    assert conf.result_backend is None


def test_no_socket_is_waited_for_without_end(runs: CountedRuns) -> None:
    options = make_app(runs).conf.broker_transport_options
    assert 0 < options["socket_timeout"] <= 5
    assert 0 < options["socket_connect_timeout"] <= 5
    assert 0 < options["health_check_interval"] <= 5


def test_a_message_for_a_queue_that_nobody_declared_is_an_error_and_no_new_queue(runs: CountedRuns) -> None:
    app = make_app(runs)
    assert app.conf.task_create_missing_queues is False
    assert set(app.amqp.queues) == {keys.NOTIFY_QUEUE, *(f"tick.{pool}" for pool in BUILT_IN_POOLS)}


def test_a_worker_of_one_pool_knows_its_queue_though_it_is_no_built_in_one(runs: CountedRuns) -> None:
    app = make_app(runs, pools="lab")
    assert "tick.lab" in app.amqp.queues
    assert worker_queues(app.settings) == ["tick.lab"]


def test_the_scripts_push_messages_themselves_unless_the_broker_is_elsewhere(runs: CountedRuns) -> None:
    assert make_app(runs).waker is None
    assert make_app(runs, broker_url="redis://elsewhere/0").waker is not None


def test_slots_and_sweeps_come_from_the_settings(runs: CountedRuns) -> None:
    conf = make_app(runs, worker_slots="7", sweep_interval="250ms").conf
    assert conf.worker_concurrency == 7
    assert conf.beat_max_loop_interval == 0.25
