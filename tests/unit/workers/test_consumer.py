"""No outage of the broker makes a worker deaf: events are not repeated for ever, and attempts to connect come often."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from gitops_reconciler.settings import Settings
from gitops_workers.app import FleetApp, create_app
from gitops_workers.consumer import LONGEST_PAUSE_SECONDS, FleetConsumer


class Refusing:
    """A producer whose broker is away; counts what it was given."""

    def __init__(self) -> None:
        self.retries: list[bool] = []

    def publish(self, _event: object, *, retry: bool, **_: object) -> None:
        self.retries.append(retry)
        raise ConnectionError("away")


class Connection:
    """A connection that is there at the third attempt."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def ensure_connection(self, note: Callable[[Exception, float], None], _tries: None, **options: Any) -> "Connection":
        self.options = options
        for _ in range(2):
            note(ConnectionError("refused"), 0.2)
        return self


@pytest.fixture
def app() -> FleetApp:
    def no_runs(*_: object) -> Any:
        raise AssertionError("nothing runs here")

    return create_app(Settings.model_validate({"redis_url": "unix:///nowhere/redis.sock"}), make_runs=no_runs)


def test_a_heartbeat_that_the_broker_does_not_take_is_sent_once_and_kept_for_the_next_connection(app: FleetApp) -> None:
    producer = Refusing()
    dispatcher = app.events.Dispatcher(enabled=False)
    dispatcher.enabled, dispatcher.producer = True, producer
    dispatcher.send("worker-heartbeat", retry=True)
    assert producer.retries == [False]
    assert len(dispatcher._outbound_buffer) == 1


def test_attempts_to_connect_come_often_and_an_outage_is_said_once(
    app: FleetApp, caplog: pytest.LogCaptureFixture
) -> None:
    assert app.conf.worker_consumer == f"{FleetConsumer.__module__}:{FleetConsumer.__name__}"
    consumer, connection = object.__new__(FleetConsumer), Connection()
    with caplog.at_level(logging.INFO, logger="gitops_workers"):
        assert consumer.ensure_connected(connection) is connection
        assert consumer.ensure_connected(Connection()) is not connection
    assert connection.options["interval_max"] == LONGEST_PAUSE_SECONDS <= 2
    assert "callback" in connection.options  # a wish to end is heard between two attempts
    told = [record.getMessage() for record in caplog.records]
    away = "broker does not answer this worker, which tries on: refused"
    assert told == [away, "broker answers this worker again"] * 2
