"""The notifier over a real server: order, retries, and that no channel waits for another."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gitops_reconciler import keys
from gitops_reconciler.errors import AlertRefusedError, DeliveryError, StoreUnavailableError
from gitops_reconciler.notify.base import Alert
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.work.base import ItemSpec, Mark
from gitops_reconciler.work.redis import RedisWork
from gitops_workers.notifier import Notifier, needs_wake

OLD = "1-1"
"""The id of an entry of long ago."""


@dataclass
class Channel:
    """Remembers what it took; fails as it is told to."""

    error: DeliveryError | None = None
    taken: list[str] = field(default_factory=list)
    attempts: int = 0

    def send(self, alert: Alert) -> None:
        self.attempts += 1
        if self.error is not None:
            raise self.error
        self.taken.append(f"{alert.target} {alert.event}")


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(request: pytest.FixtureRequest, redis_url: str, redis_client: Redis) -> Iterator[TextRedis]:
    with Redis.from_url(redis_url, decode_responses=True, protocol=request.param) as made:
        yield as_text(made)


def happen(client: TextRedis, event: str, item: str = "default/web") -> str:
    return client.xadd(keys.ALERTS, {"event": event, "item": item, "at": "1795972200342", "kind": "x"})


def notifier(client: TextRedis, **channels: Any) -> Notifier:
    made = Notifier(client, channels)
    made.begin()
    return made


def pending(client: TextRedis, channel: str) -> int:
    return int(client.xpending(keys.ALERTS, keys.notifier_group(channel))["pending"])


def age(client: TextRedis, channel: str, entry: str, *, attempts: int) -> None:
    """Let a day have passed since the last of so many attempts."""
    command: Any = client
    group = keys.notifier_group(channel)
    command.execute_command(
        "XCLAIM", keys.ALERTS, group, "notifier", 0, entry, "IDLE", 86_400_000, "RETRYCOUNT", attempts, "JUSTID"
    )


def test_alerts_go_out_in_order_and_other_events_are_passed_over(client: TextRedis) -> None:
    chat = Channel()
    sender = notifier(client, chat=chat)
    for event in ("ended", "failed", "changed", "ended", "recovered", "stale"):
        happen(client, event)
    sender.drain()
    assert chat.taken == ["default/web failed", "default/web recovered", "default/web stale"]
    assert pending(client, "chat") == 0


def test_what_the_protocol_writes_becomes_an_alert(client: TextRedis) -> None:
    chat = Channel()
    sender = notifier(client, chat=chat)
    work = RedisWork(client)
    work.register(ItemSpec(item="default/web", kind="x", pool="lab", repository=""), first_due_in_ms=None)
    work.mark("default/web", Mark.STALE, actor="source:default", reason="its document left the tree")
    sender.drain()
    assert chat.taken == ["default/web stale"]


def test_a_broken_channel_holds_up_no_other(client: TextRedis) -> None:
    broken, chat = Channel(error=DeliveryError("answered 500")), Channel()
    sender = notifier(client, broken=broken, chat=chat)
    for number in range(120):
        happen(client, "failed", f"default/t{number}")
    sender.drain()
    assert len(chat.taken) == 120
    assert broken.attempts == 1


def test_what_was_not_taken_is_tried_again_when_its_time_has_come_and_nothing_overtakes_it(client: TextRedis) -> None:
    chat = Channel(error=DeliveryError("answered 500"))
    sender = notifier(client, chat=chat)
    failed = happen(client, "failed")
    happen(client, "recovered")
    sender.drain()
    sender.drain()
    assert chat.attempts == 1
    chat.error = None
    sender.drain()
    assert chat.taken == []
    age(client, "chat", failed, attempts=1)
    sender.drain()
    assert chat.taken == ["default/web failed", "default/web recovered"]
    assert pending(client, "chat") == 0


def test_attempts_are_bounded_and_then_the_alert_is_kept_as_a_dead_letter(
    client: TextRedis, caplog: pytest.LogCaptureFixture
) -> None:
    chat = Channel(error=DeliveryError("answered 500"))
    sender = notifier(client, chat=chat)
    entry = happen(client, "failed")
    sender.drain()
    age(client, "chat", entry, attempts=19)
    with caplog.at_level(logging.ERROR):
        sender.drain()
    ((_, letter),) = client.xrange(keys.DEAD_LETTERS)
    assert letter["channel"] == "chat"
    assert "default/web" in letter["alert"]
    assert "given up" in caplog.text
    assert pending(client, "chat") == 0


def test_an_alert_that_the_other_side_refuses_holds_up_the_next_ones_for_three_attempts_only(client: TextRedis) -> None:
    chat = Channel(error=AlertRefusedError("refused with 422"))
    sender = notifier(client, chat=chat)
    entry = happen(client, "failed")
    sender.drain()
    age(client, "chat", entry, attempts=2)
    sender.drain()
    assert client.xlen(keys.DEAD_LETTERS) == 1


def test_two_workers_at_once_send_each_alert_once(client: TextRedis) -> None:
    chat = Channel()
    senders = [notifier(client, chat=chat) for _ in range(4)]
    for number in range(200):
        happen(client, "failed", f"default/t{number:03}")
    threads = [threading.Thread(target=sender.drain) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert chat.taken == [f"default/t{number:03} failed" for number in range(200)]


def test_an_event_that_comes_while_another_worker_is_about_to_finish_is_not_left_lying(client: TextRedis) -> None:
    class Late(Channel):
        def send(self, alert: Alert) -> None:
            super().send(alert)
            if len(self.taken) == 1:
                happen(client, "recovered")
                sender.drain()  # its message finds the channel taken, and is gone

    chat = Late()
    sender = notifier(client, chat=chat)
    happen(client, "failed")
    sender.drain()
    assert chat.taken == ["default/web failed", "default/web recovered"]


def test_a_new_channel_is_not_told_old_stories(client: TextRedis) -> None:
    happen(client, "failed")
    chat = Channel()
    sender = notifier(client, chat=chat)
    happen(client, "recovered")
    sender.drain()
    assert chat.taken == ["default/web recovered"]


def test_after_the_store_was_emptied_no_alert_of_its_new_life_is_missed(client: TextRedis) -> None:
    chat = Channel()
    sender = notifier(client, chat=chat)
    client.flushdb()
    happen(client, "failed")
    sender.drain()
    assert chat.taken == ["default/web failed"]


def test_an_alert_that_was_trimmed_while_it_waited_holds_up_nothing(client: TextRedis) -> None:
    chat = Channel(error=DeliveryError("answered 500"))
    sender = notifier(client, chat=chat)
    lost = happen(client, "failed")
    sender.drain()
    command: Any = client
    command.xtrim(keys.ALERTS, maxlen=0, approximate=False)
    age(client, "chat", lost, attempts=1)
    chat.error = None
    happen(client, "recovered")
    sender.drain()
    assert chat.taken == ["default/web recovered"]


def test_a_drain_returns_at_once_while_somebody_else_drains(client: TextRedis) -> None:
    chat = Channel()
    sender = notifier(client, chat=chat)
    happen(client, "failed")
    client.set(keys.notifier_lock("chat"), "somebody", px=60_000)
    sender.drain()
    assert chat.taken == []


def test_a_lost_message_is_noticed_when_an_event_was_not_read_for_five_seconds(client: TextRedis) -> None:
    notifier(client, chat=Channel())
    command: Any = client
    command.delete(keys.ALERTS)
    command.xgroup_create(keys.ALERTS, keys.notifier_group("chat"), id="0", mkstream=True)
    assert not needs_wake(client, ["chat"])
    command.xadd(keys.ALERTS, {"event": "failed", "item": "default/web", "at": "1"}, id=OLD)
    assert needs_wake(client, ["chat"])
    assert not needs_wake(client, ["no such channel"])


def test_what_just_happened_is_no_lost_message(client: TextRedis) -> None:
    notifier(client, chat=Channel())
    happen(client, "failed")
    assert not needs_wake(client, ["chat"])


def test_a_waiting_alert_is_woken_when_its_time_has_come_and_not_before(client: TextRedis) -> None:
    sender = notifier(client, chat=Channel(error=DeliveryError("answered 500")))
    entry = happen(client, "failed")
    sender.drain()
    assert not needs_wake(client, ["chat"])
    age(client, "chat", entry, attempts=1)
    assert needs_wake(client, ["chat"])


def test_an_empty_store_wakes_nobody(client: TextRedis) -> None:
    assert not needs_wake(client, ["chat"])


def test_a_store_that_does_not_answer_is_an_error_of_ours(tmp_path: Path) -> None:
    no_retry = Retry(NoBackoff(), 0)
    away = Redis(unix_socket_path=str(tmp_path / "no.sock"), decode_responses=True, retry=no_retry)
    with pytest.raises(StoreUnavailableError):
        Notifier(away, {"chat": Channel()}).drain()


def test_a_channel_that_is_new_hears_of_the_pause_that_it_was_made_in_and_of_nothing_before(client: TextRedis) -> None:
    command: Any = client
    command.xadd(keys.ALERTS, {"event": "failed", "item": "default/web", "at": "1"}, id=OLD)
    work = RedisWork(client)
    work.pause("emptied", actor="h1", epoch="a" * 32)
    chat = Channel()
    notifier(client, chat=chat).drain()
    assert chat.taken == [" paused"]
    work.resume(actor="ann")
    late = Channel()
    notifier(client, late=late).drain()
    assert late.taken == []
