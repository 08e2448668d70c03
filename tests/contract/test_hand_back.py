"""What becomes of an item whose message was taken by a worker that begins no run any more."""

import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.work.base import Cause, Claim, ItemSpec, Mark
from gitops_reconciler.work.redis import RedisWork, WorkOptions

WEB, QUEUE = "default/web", "tick.custom"
ASK = Cause(trigger=Trigger.MANUAL, actor="ann")


@pytest.fixture
def work(client: TextRedis) -> RedisWork:
    made = RedisWork(client)
    made.register(ItemSpec(item=WEB, kind="x", pool="custom", repository=""), first_due_in_ms=None)
    return made


def take_message(client: TextRedis) -> None:
    assert client.llen(QUEUE) == 1
    client.delete(QUEUE)


def test_what_waits_gets_a_new_message_and_its_ask_and_causes_are_those_from_before(
    work: RedisWork, client: TextRedis
) -> None:
    work.request([WEB], ASK)
    take_message(client)
    assert work.hand_back(WEB)
    assert client.llen(QUEUE) == 1
    claim = work.claim(WEB, "r1", ttl_ms=60_000, holder="h")
    assert isinstance(claim, Claim)
    assert (claim.generation, claim.causes) == (1, (ASK,))
    assert client.hgetall(keys.QUEUED_IN) == {}


def test_what_runs_by_now_or_waits_for_nothing_or_is_unknown_gets_none(work: RedisWork, client: TextRedis) -> None:
    assert not work.hand_back(WEB)
    assert not work.hand_back("default/nobody")
    work.request([WEB], ASK)
    take_message(client)
    work.claim(WEB, "r1", ttl_ms=60_000, holder="h")
    work.request([WEB], ASK)
    assert not work.hand_back(WEB)
    assert client.llen(QUEUE) == 0


def test_what_was_suspended_meanwhile_gets_none_that_leads_to_a_run(work: RedisWork, client: TextRedis) -> None:
    work.request([WEB], ASK)
    take_message(client)
    work.mark(WEB, Mark.SUSPEND, actor="ann")
    work.hand_back(WEB)
    assert not isinstance(work.claim(WEB, "r1", ttl_ms=60_000, holder="h"), Claim)


def test_with_a_broker_elsewhere_the_message_is_sent_there(client: TextRedis) -> None:
    sent: list[tuple[str, str]] = []
    work = RedisWork(client, options=WorkOptions(pushes=False), waker=sent.extend)
    work.register(ItemSpec(item=WEB, kind="x", pool="custom", repository=""), first_due_in_ms=None)
    work.request([WEB], ASK)
    assert work.hand_back(WEB)
    assert sent == [(WEB, "custom")] * 2
