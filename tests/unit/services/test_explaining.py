"""Why a target is as it is: one case for each thing that may hold it up, and which is the summary of several."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gitops_reconciler.store.fleet import DeadPool, LiveWorker, Pause
from gitops_reconciler.store.redis import ItemView, RunView
from gitops_services.api.explaining import Situation, explain

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
SHA = "a" * 40
RUN = "0" * 32


def ms(**ago: float) -> str:
    """So long ago, as the store writes it."""
    return str(int((NOW - timedelta(**ago)).timestamp() * 1000))


def target(
    *, status: str = "ready", due_in: float | None = 400, requested: int = 3, observed: int = 3, **more: str
) -> ItemView:
    """A target that is well, changed as told."""
    fields = {
        "kind": "terraform",
        "status": status,
        "schedule": '{"interval": 600}',
        "applied_at": ms(minutes=3),
        "subject": "Fix it.",
        **more,
    }
    return ItemView(
        item="default/web",
        kind="terraform",
        pool="terraform",
        status=status,
        reason=more.get("reason", "Applied"),
        message=more.get("message", "done"),
        revision=SHA,
        applied_revision=more.get("applied_revision", SHA),
        last_run=RUN,
        requested=requested,
        observed=observed,
        due_at=None if due_in is None else NOW + timedelta(seconds=due_in),
        fields=fields,
    )


def running(**more: str) -> dict[str, Any]:
    return {"token": "7", "run": RUN, "holder": "h1", "claimed": "3", **more}


def run_of(state: str = "changed", **more: str) -> RunView:
    causes = json.dumps([{"trigger": "webhook", "actor": "github:octocat"}])
    fields = {"run": RUN, "causes": causes, "started_at": ms(minutes=4), "ended_at": ms(minutes=3), **more}
    return RunView(run=RUN, item="default/web", state=state, fields=fields)


def worker(name: str, *pools: str, busy: int = 0) -> LiveWorker:
    return LiveWorker(name=name, pools=frozenset(pools), slots=4, busy=busy)


def told(view: ItemView, **situation: object) -> list[str]:
    """Everything that is said, the summary first."""
    said = explain(view, Situation(now=NOW, **situation))  # type: ignore[arg-type]  # a table of fields
    assert said.name == "default/web"
    return [said.summary, *said.facts]


PAUSE = Pause(reason="migration", advice="", actor="ann", at=NOW - timedelta(hours=3, minutes=20), is_by_person=True)
EMPTIED = Pause(reason="the store was emptied", advice="look first", actor="h1", at=NOW, is_by_person=False)
DEAD = DeadPool(pool="terraform", waiting=2, since=NOW - timedelta(seconds=75), oldest="default/web")
WAITS: dict[str, Any] = {"queued_pool": "terraform", "queued_at": ms(seconds=75)}


@pytest.mark.parametrize(
    ("view", "situation", "summary"),
    [
        (target(), {}, f"Revision {SHA[:12]} (Fix it) was applied and confirmed 3 min ago."),
        (target(applied_revision="", status="pending"), {}, "Nothing was ever applied and confirmed."),
        (
            target(),
            {"pause": PAUSE},
            "The fleet was paused by ann 3 h 20 min ago: migration. No target runs until `gitops resume --fleet`.",
        ),
        (
            target(),
            {"pause": EMPTIED},
            "The fleet was paused 0 s ago: the store was emptied. No target runs until `gitops resume --fleet`.",
        ),
        (
            target(status="suspended", suspended=ms(days=2), suspended_by="bob", suspended_why="holidays\nof ann."),
            {},
            "It was suspended by bob 2 days ago: holidays of ann. Asks are remembered; it runs once it is resumed.",
        ),
        (
            target(status="stale", stale=ms(minutes=90)),
            {},
            (
                "Its document left the tree 1 h 30 min ago: what was applied may still exist, and nothing runs until "
                "the document is back."
            ),
        ),
        (
            target(desired="absent", stale=ms(minutes=9)),
            {},
            "It is wished to be gone: its next run destroys it, and the schedule does not ask for it.",
        ),
        (
            target(status="destroyed", desired="absent"),
            {},
            "It was destroyed as wished: only a person's ask runs it again.",
        ),
        (
            target(status="stalled", reason="InvalidSpec", message="no such folder", stalled_at=f"{SHA} digest"),
            {},
            (
                f"It is stalled at revision {SHA[:12]} (InvalidSpec): no such folder. The schedule does not try "
                "the same revision and document again; a new revision, a changed document or `gitops enqueue "
                "default/web` does."
            ),
        ),
        (
            target(status="running", **running()),
            {"run": run_of("running", ended_at=""), "lease_seconds": 48.2},
            f"It has been running for 4 min on h1 (run {RUN}), asked for by webhook github:octocat.",
        ),
        (
            target(observed=2, **WAITS),
            {"workers": (worker("w1@h", "terraform", busy=4), worker("w2@h", "terraform", "pi", busy=1))},
            "An ask has waited for 75 s in pool 'terraform', which 2 live workers serve (5 of 8 slots are busy).",
        ),
        (
            target(observed=2, **WAITS),
            {"workers": (worker("w1@h", "terraform", busy=4), worker("w2@h", "pi"))},
            "An ask has waited for 75 s in pool 'terraform', which the worker w1@h serves (4 of 4 slots are busy).",
        ),
        (
            target(observed=2, **WAITS),
            {"workers": (worker("w2@h", "pi"),), "dead_pools": (DEAD,)},
            (
                "An ask has waited for 75 s in pool 'terraform', which no live worker serves (PoolDead): start a "
                "worker with GITOPS_POOLS=terraform, or find out why its workers are gone."
            ),
        ),
        (
            target(due_in=40, early_ends="3", waiting_for="the documents were asked to sync first"),
            {},
            "Its last run did nothing but wait: the documents were asked to sync first.",
        ),
        (
            target(due_in=40, early_ends="3"),
            {},
            "Its last 3 runs ended before the apply: it is tried again in 40 s (pauses double from 10 s to 15 min).",
        ),
        (
            target(due_in=None, lost_ends="1"),
            {},
            "Its last run was lost, outcome unknown: it is asked for again; after three in a row it stalls.",
        ),
        (
            target(status="failed", reason="ApplyFailed", message="exit 1\x1b[31m"),
            {},
            "Its last run failed (ApplyFailed): exit 1.",
        ),
        (
            target(status="unreachable", reason="Unreachable", message="no route"),
            {},
            "Its host could not be reached (Unreachable): no route.",
        ),
    ],
)
def test_the_summary_is_what_weighs_most(view: ItemView, situation: dict[str, object], summary: str) -> None:
    assert told(view, **situation)[0] == summary


@pytest.mark.parametrize(
    ("view", "situation", "fact"),
    [
        (target(**running()), {"lease_seconds": 48.2}, "Its lease ends in 48 s unless the run renews it."),
        (
            target(**running(revoked="7")),
            {"lease_seconds": 9.0},
            "Its lease was revoked: the run is interrupted, and the next one may start once the lease has ended.",
        ),
        (
            target(**running()),
            {"gap_seconds": 30.0},
            "Its lease has ended, but Redis was away: the run has another 30 s to come back before another takes it.",
        ),
        (
            target(**running()),
            {},
            "Its lease has ended: the next sweep counts the run as lost and asks for it again.",
        ),
        (
            target(requested=4, **running()),
            {"lease_seconds": 9.0},
            "It was asked for meanwhile: exactly one more run follows.",
        ),
        (
            target(),
            {"run": run_of()},
            f"Its last run ({RUN}) ended 3 min ago as changed, asked for by webhook github:octocat.",
        ),
        (target(requested=0, observed=0), {}, "It was never asked for."),
        (target(), {"pause": EMPTIED}, "Look first."),
        (target(), {}, "It was asked for 3 times, and a run that started afterwards has ended."),
        (
            target(requested=1, observed=0),
            {},
            "It was asked for once; no run that started after the last time has ended yet.",
        ),
        (target(), {}, "The schedule asks for it in 6 min (every 10 min)."),
        (target(schedule='{"cron": "*/5 * * * *"}'), {}, "The schedule asks for it in 6 min (cron */5 * * * *)."),
        (target(due_in=None, schedule="{}"), {}, "It has no schedule: it runs when somebody pushes or asks."),
        (target(due_in=-3), {}, "The schedule asks for it now (every 10 min)."),
        (
            target(due_in=-100),
            {"swept_at": NOW - timedelta(seconds=95)},
            "It has been due for 100 s, and the last sweep was 95 s ago: is a beat running?",
        ),
        (target(due_in=-100), {}, "It has been due for 100 s, and no sweep was ever made: is a beat running?"),
    ],
)
def test_the_facts_say_what_goes_on_and_what_comes_next(
    view: ItemView, situation: dict[str, object], fact: str
) -> None:
    assert fact in told(view, **situation)


def test_several_hindrances_are_all_told_the_widest_first() -> None:
    view = target(status="suspended", suspended=ms(days=2), suspended_by="bob", stale=ms(minutes=90), **WAITS)
    facts = told(view, pause=PAUSE, dead_pools=(DEAD,))
    heads = [fact.partition(" ")[0] + " " + fact.split()[1] for fact in facts[:4]]
    assert heads == ["The fleet", "It was", "Its document", "An ask"]


def test_what_tools_said_is_one_bounded_line() -> None:
    facts = told(target(status="failed", reason="ApplyFailed", message="line\nline " * 200))
    assert all("\n" not in fact for fact in facts)
    assert len(facts[0]) < 500


def test_records_that_can_not_be_read_explain_nothing_and_break_nothing() -> None:
    view = target(schedule="{", due_in=5, early_ends="", **running(claimed=""))
    assert told(view, run=run_of(causes="[1, {}]"))
