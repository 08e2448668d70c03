"""What a worker toggles and says, without a store."""

import json
from dataclasses import dataclass, field

from gitops_workers.presence import SignOfLife, _pools, _toggle_task_events


@dataclass
class Dispatcher:
    groups: set[str] = field(default_factory=lambda: {"worker"})


def test_task_events_are_sent_while_somebody_watches_and_worker_events_always() -> None:
    dispatcher = Dispatcher()
    _toggle_task_events(dispatcher, is_wanted=True)
    assert dispatcher.groups == {"worker", "task"}
    _toggle_task_events(dispatcher, is_wanted=False)
    _toggle_task_events(dispatcher, is_wanted=False)
    assert dispatcher.groups == {"worker"}


def test_a_worker_that_is_not_connected_yet_toggles_nothing() -> None:
    _toggle_task_events(None, is_wanted=True)


def test_the_pools_of_a_worker_are_those_of_its_tick_queues() -> None:
    assert _pools({"tick.b": 1, "notify": 2, "tick.a.b": 3}) == ["a.b", "b"]


def test_a_sign_of_life_is_one_json_object() -> None:
    sign = SignOfLife(
        name="w@h", host="h", pid=1, version="0", pools=("a",), channels=("log",), slots=4, busy=1, at=1795972200342
    )
    said = json.loads(sign.to_json())
    assert said["pools"] == ["a"]
    assert (said["slots"], said["busy"], said["at"]) == (4, 1, 1795972200342)
