"""The worker's side of a run: what it does when a run never began, and that it keeps out of those that did."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import fakeredis
import pytest

from gitops_reconciler import keys
from gitops_reconciler.clock import SystemClock
from gitops_reconciler.errors import ReconcileError
from gitops_reconciler.outcomes import NextAsk, Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.runs.epochs import EpochFile, HostEpoch
from gitops_reconciler.runs.launching import FleetRunner
from gitops_reconciler.settings import load_settings
from gitops_reconciler.store.redis import RedisStore, RunView
from gitops_reconciler.supervise.order import Order
from gitops_reconciler.work.base import Cause, Completion, ItemSpec
from gitops_reconciler.work.redis import RedisWork

WEB = "default/web"


@dataclass
class Run:
    """A run that went as told."""

    was_seen_through: bool = True
    failure: str = ""
    is_busy: bool = False
    was_left_lying: bool = False
    is_stopped: bool = False

    def wait(self) -> bool:
        return self.was_seen_through

    def stop(self) -> None:
        self.is_stopped = True


@dataclass
class Starts:
    """A launcher that gives this run, after having completed it where its supervisor would have."""

    work: RedisWork
    run: Run
    error: ReconcileError | None = None

    def start(self, order: Order) -> Run:
        if self.error is not None:
            raise self.error
        if self.run.was_seen_through:
            record = {"state": "failed", "reason": "RunCrashed", "message": "crashed"}
            crash = Completion(record=record, status="failed", next_ask=NextAsk.BACKOFF, due_in_ms=None, applied=False)
            assert self.work.complete(order.item, order.token, order.run, crash)
        return self.run

    def close(self) -> None:
        pass


@pytest.fixture
def client() -> TextRedis:
    return as_text(fakeredis.FakeRedis(decode_responses=True))


@pytest.fixture
def work(client: TextRedis) -> RedisWork:
    made = RedisWork(client)
    made.register(ItemSpec(item=WEB, kind="note", pool="custom", repository=""), first_due_in_ms=None)
    made.request([WEB], Cause(trigger=Trigger.SCHEDULE))
    return made


def runner(work: RedisWork, launcher: Starts, state_dir: Path) -> FleetRunner:
    return FleetRunner(work=work, launcher=launcher, settings=load_settings(state_dir=state_dir), clock=SystemClock())


def test_a_run_that_its_supervisor_completed_is_not_given_back(
    work: RedisWork, client: TextRedis, tmp_path: Path
) -> None:
    client.delete("tick.custom")
    runner(work, Starts(work, Run(failure="SystemExit")), tmp_path).run(WEB)
    assert client.lrange("tick.custom", 0, -1) == []
    assert client.hget(keys.item(WEB), "early_ends") == "1"
    assert client.zscore(keys.DUE, WEB) is not None


@pytest.mark.parametrize(
    ("run", "left"),
    [
        (Run(was_seen_through=False, is_busy=True), ["pending", None, None]),
        (Run(was_seen_through=False, failure="no memory"), ["failed", "InternalError", None]),
        (Run(was_seen_through=False, was_left_lying=True), ["pending", "InternalError", None]),
        (Run(was_seen_through=False), ["pending", "Lost", None]),
    ],
)
def test_a_run_that_never_began_is_given_back_with_its_reason(
    run: Run, left: list[str | None], work: RedisWork, client: TextRedis, tmp_path: Path
) -> None:
    runner(work, Starts(work, run), tmp_path).run(WEB)
    assert client.hmget(keys.item(WEB), ["status", "reason", "token"]) == left
    assert client.zscore(keys.DUE, WEB) is not None


def test_a_launcher_that_cannot_start_gives_the_claim_back_and_says_so(
    work: RedisWork, client: TextRedis, tmp_path: Path
) -> None:
    broken = Starts(work, Run(), error=ReconcileError("no server could be started"))
    with pytest.raises(ReconcileError):
        runner(work, broken, tmp_path).run(WEB)
    assert "no server could be started" in str(client.hget(keys.item(WEB), "message"))


@pytest.mark.parametrize(("state", "level"), [("no_change", "INFO"), ("failed", "WARNING"), ("lost", "WARNING")])
def test_the_log_says_how_a_run_ended(
    state: str, level: str, work: RedisWork, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = runner(work, Starts(work, Run()), tmp_path)
    told = RunView(run="x", item=WEB, state=state, fields={"message": "what it said"})
    with caplog.at_level("INFO"):
        dataclasses.replace(made, read_run=lambda _run: told).run(WEB)
    (line,) = [record for record in caplog.records if record.getMessage() == "run ended"]
    said = vars(line)
    assert (line.levelname, said["target"], said["state"], said["message_"]) == (level, WEB, state, "what it said")


def test_what_was_claimed_under_another_epoch_is_given_back_unrun_and_runs_once_the_fleet_is_resumed(
    work: RedisWork, client: TextRedis, tmp_path: Path
) -> None:
    file = EpochFile(tmp_path / "epoch")
    file.write("a" * 32)
    launcher = Starts(work, Run())
    epoch = HostEpoch(file, RedisStore(client), work)
    cautious = dataclasses.replace(runner(work, launcher, tmp_path), epoch=epoch)
    assert cautious.run(WEB) is None
    assert client.hget(keys.item(WEB), "last_run_state") == "skipped"
    assert (
        client.hget(keys.item(WEB), "waiting_for")
        == "the store is another one than this host worked with: nothing was run"
    )
    assert client.exists(keys.PAUSED)
    assert not client.exists(keys.lease(WEB))
    work.resume(actor="ann")
    work.sweep(limit=10, rewake_after_ms=1000, ttl_ms=1000)
    assert cautious.run(WEB) is not None


def test_sources_are_synced_under_another_epoch_so_that_their_targets_can_be_seen(
    work: RedisWork, client: TextRedis, tmp_path: Path
) -> None:
    file = EpochFile(tmp_path / "epoch")
    file.write("a" * 32)
    source = "source:default"
    work.register(ItemSpec(item=source, kind="source", pool="source", repository=""), first_due_in_ms=None)
    work.request([source], Cause(trigger=Trigger.MANUAL))
    epoch = HostEpoch(file, RedisStore(client), work)
    epoch.check()
    assert client.exists(keys.PAUSED)
    cautious = dataclasses.replace(runner(work, Starts(work, Run()), tmp_path), epoch=epoch)
    assert cautious.run(source) is not None


def test_who_winds_down_begins_no_run_and_the_item_gets_another_message(
    work: RedisWork, client: TextRedis, tmp_path: Path
) -> None:
    winding_down = runner(work, Starts(work, Run()), tmp_path)
    winding_down.wind_down()
    client.delete("tick.custom")  # its message was taken
    assert winding_down.run(WEB) is None
    assert client.llen("tick.custom") == 1
    assert client.zcard(keys.LEASES) == 0
    assert client.zscore(keys.QUEUED, WEB) is not None


def test_a_run_that_begins_just_when_all_are_stopped_is_stopped_as_well(work: RedisWork, tmp_path: Path) -> None:
    run = Run()
    stopped = runner(work, Starts(work, run), tmp_path)
    stopped.stop()
    stopped.run(WEB)
    assert run.is_stopped
