"""Provenance and markers: one suite over the file store and the store in Redis."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import fakeredis
import pytest

from gitops_reconciler.errors import Reason
from gitops_reconciler.layout import Layout
from gitops_reconciler.models import ApplyResult, Status
from gitops_reconciler.outcomes import Outcome, RunState, Trigger, target_status
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.store.base import Markers, Provenance
from gitops_reconciler.store.files import FileStore, last_recorded_sha, record_last_sha
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.work.base import Cause, Claim, Completion, ItemSpec
from gitops_reconciler.work.redis import RedisWork

A, B = "a" * 40, "b" * 40


@dataclass
class Kept:
    """A store, and how ends of runs get into it."""

    provenance: Provenance
    markers: Markers
    leave: Callable[[Outcome], None]


def _in_files(folder: Path) -> Kept:
    store = FileStore(Layout(folder))

    def leave(outcome: Outcome) -> None:
        (store.record if outcome.was_applied else store.attempted)(outcome)

    return Kept(store, store, leave)


def _in_redis(client: TextRedis) -> Kept:
    work, store = RedisWork(client), RedisStore(client)

    def leave(outcome: Outcome) -> None:
        work.register(ItemSpec(item=outcome.target, kind="x", pool="x", repository=""), first_due_in_ms=None)
        work.request([outcome.target], Cause(trigger=Trigger.MANUAL))
        claim = work.claim(outcome.target, uuid4().hex, ttl_ms=60_000, holder="here")
        assert isinstance(claim, Claim)
        status = target_status(outcome)
        completion = Completion(
            record={
                "state": outcome.state.value,
                "reason": outcome.reason.value,
                "message": outcome.message,
                "revision": outcome.revision,
            },
            status=status.value if status else None,
            next_ask=outcome.next_ask,
            due_in_ms=None,
            applied=outcome.was_applied,
        )
        assert work.complete(claim.item, claim.token, claim.run, completion)

    return Kept(store, store, leave)


@pytest.fixture(params=["files", "redis", "fakeredis"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "files":
        return _in_files(tmp_path)
    if request.param == "redis":
        return _in_redis(request.getfixturevalue("redis_client"))
    return _in_redis(as_text(fakeredis.FakeRedis(decode_responses=True)))


def applied(revision: str, state: RunState = RunState.CHANGED) -> Outcome:
    return Outcome(target="web", state=state, reason=Reason.APPLIED, message="m", revision=revision, was_applied=True)


def failed(revision: str) -> Outcome:
    return Outcome(target="web", state=RunState.FAILED, reason=Reason.APPLY_FAILED, message="no", revision=revision)


@pytest.mark.req("R0.16")
def test_nothing_is_known_of_a_target_that_never_ran(kept: Kept) -> None:
    assert kept.provenance.applied("web") is None
    assert kept.provenance.last_attempt("web") is None
    assert kept.markers.marker("web") is None


@pytest.mark.req("R0.16")
def test_success_records_revision_result_and_message(kept: Kept) -> None:
    kept.leave(applied(A))
    found = kept.provenance.applied("web")
    assert found is not None
    assert (found.sha, found.result, found.message) == (A, "changed", "m")
    assert found.at is not None


@pytest.mark.req("R0.13", "R0.17")
def test_a_failure_keeps_what_was_applied_and_shows_as_the_last_attempt(kept: Kept) -> None:
    kept.leave(applied(A))
    kept.leave(failed(B))
    found, attempt = kept.provenance.applied("web"), kept.provenance.last_attempt("web")
    assert found is not None
    assert attempt is not None
    assert found.sha == A
    assert (attempt.state, attempt.reason, attempt.message, attempt.revision) == ("failed", "ApplyFailed", "no", B)


@pytest.mark.req("R0.17")
def test_a_confirmed_no_op_moves_the_applied_revision(kept: Kept) -> None:
    kept.leave(applied(A))
    kept.leave(applied(B, RunState.NO_CHANGE))
    found = kept.provenance.applied("web")
    assert found is not None
    assert (found.sha, found.result) == (B, "no_change")


@pytest.mark.req("R0.45")
def test_a_marker_is_kept_per_target_and_can_be_forgotten(kept: Kept) -> None:
    kept.markers.set_marker("web", "hash-1")
    kept.markers.set_marker("api", "hash-2")
    kept.markers.set_marker("web", None)
    assert kept.markers.marker("web") is None
    assert kept.markers.marker("api") == "hash-2"


def test_recording_keeps_the_marker(kept: Kept) -> None:
    kept.markers.set_marker("web", "hash-1")
    kept.leave(applied(A))
    assert kept.markers.marker("web") == "hash-1"


@pytest.mark.req("R0.16", "R0.66")
def test_the_file_holds_sha_result_and_message_in_the_configured_folder(state_dir: Path) -> None:
    record_last_sha("t", "abc", Status(result=ApplyResult.CHANGED, message="m"))
    assert last_recorded_sha("t") == "abc"
    raw = json.loads((state_dir / "targets" / "t.json").read_text())
    assert {name: raw[name] for name in ("sha", "result", "message")} == {
        "sha": "abc",
        "result": "changed",
        "message": "m",
    }
    assert last_recorded_sha("unknown") is None


def test_a_record_that_a_crash_cut_off_is_taken_as_unknown(tmp_path: Path) -> None:
    store = FileStore(Layout(tmp_path))
    store.record(applied(A))
    Layout(tmp_path).record("web").write_text('{"sha": "aaa')
    assert store.applied("web") is None
    store.record(applied(B))
    found = store.applied("web")
    assert found is not None
    assert found.sha == B


def test_records_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    store = FileStore(Layout(tmp_path))
    store.record(applied(A))
    assert Layout(tmp_path).record("web").stat().st_mode & 0o077 == 0
    assert [path.name for path in (tmp_path / "targets").iterdir()] == ["web.json"]
