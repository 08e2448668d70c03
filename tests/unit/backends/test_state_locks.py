"""What a note proves of a lock, and what it does not: in doubt a lock is nobody's to break."""

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.backends.state_locks import Lock, StateLocks
from gitops_reconciler.processes.host import Host, strangers

BEGAN = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
HELD = BEGAN + timedelta(seconds=2)
US = "deploy@worker-1"
LEFT = Lock(id="a-1", who=US, operation="OperationTypeApply", created="2026-05-04 12:00:01.123456789 +0000 UTC")


@pytest.fixture
def locks(tmp_path: Path) -> StateLocks:
    return StateLocks(root=tmp_path, state="here", who=US, engines=frozenset({"no-such-engine"}), run="r1")


def leave(locks: StateLocks, *, began: datetime = BEGAN, held: datetime | None = HELD, **changes: Any) -> Path:
    """A note as a killed command leaves it."""
    with locks.noting(began) as holding:
        if held is not None:
            holding.held(held.isoformat())
        assert holding.path is not None
        path = holding.path
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(values))
    return path


def test_the_lock_made_while_a_dead_command_took_it_is_that_commands(locks: StateLocks) -> None:
    leave(locks)
    found = locks.judge(LEFT).orphan_of
    assert found is not None
    assert str(found) == "run r1"
    assert locks.knows_of_dead


@pytest.mark.parametrize(
    ("lock", "why"),
    [
        (replace(LEFT, who="deploy@worker-2"), "it was not taken by deploy@worker-1"),
        (replace(LEFT, who="ann@worker-1"), "it was not taken by deploy@worker-1"),
        (replace(LEFT, who=""), "its server does not tell who that is"),
        (replace(LEFT, created="2026-05-04 11:59:59.999999999 +0000 UTC"), "no run that died"),
        (replace(LEFT, created="2026-05-04 12:00:02.1 +0000 UTC"), "no run that died"),
        (replace(LEFT, created="2026-05-04 12:00:01 +0200 CEST"), "no run that died"),
        (replace(LEFT, created="yesterday"), "no run that died"),
        (replace(LEFT, created=""), "no run that died"),
    ],
)
def test_any_other_lock_is_not(locks: StateLocks, lock: Lock, why: str) -> None:
    leave(locks)
    verdict = locks.judge(lock)
    assert (verdict.orphan_of, verdict.is_live) == (None, False)
    assert verdict.why.startswith(why)


def test_a_command_that_never_had_the_lock_proves_nothing(locks: StateLocks) -> None:
    leave(locks, held=None)
    assert locks.judge(LEFT).orphan_of is None


def test_a_clock_that_was_set_back_meanwhile_proves_nothing(locks: StateLocks) -> None:
    leave(locks, held=BEGAN - timedelta(hours=1))
    assert locks.judge(LEFT).orphan_of is None


def test_the_lock_of_another_state_is_not_ours_to_break_whatever_the_times(locks: StateLocks) -> None:
    leave(replace(locks, state="elsewhere"))
    assert locks.judge(LEFT).orphan_of is None
    assert not locks.knows_of_dead


@pytest.mark.parametrize("state", ["here", "elsewhere"])
def test_a_command_that_lives_is_at_work_whatever_its_state_is_called(locks: StateLocks, state: str) -> None:
    with replace(locks, state=state).noting(BEGAN) as holding:
        holding.held(HELD.isoformat())
        assert locks.judge(LEFT).is_live
    assert not locks.judge(LEFT).is_live


def test_a_child_that_inherited_the_note_keeps_its_command_alive(locks: StateLocks) -> None:
    path = leave(locks)
    with path.open("rb") as child:
        fcntl.flock(child, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert locks.judge(LEFT).is_live
    assert locks.judge(LEFT).orphan_of is not None


def other(**changes: str) -> Callable[[], dict[str, str]]:
    here = Host.this()
    return lambda: {"boot": here.boot, "machine": here.machine, **changes}


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        (other(machine="another container of this kernel"), True),
        (other(boot="another"), bool(Host.this().machine)),
        (other(boot="another", machine="another"), False),
        (other(boot="another", machine=""), False),
        (other(boot=""), False),
    ],
)
def test_only_this_kernel_or_this_machine_before_its_restart_is_believed(
    locks: StateLocks, host: Callable[[], dict[str, str]], *, is_ours: bool
) -> None:
    leave(locks, host=host())
    verdict = locks.judge(LEFT)
    assert (verdict.orphan_of is not None) is is_ours
    if not is_ours:
        assert "may run on another machine" in verdict.why


def test_a_container_whose_machine_is_not_known_was_never_here_before() -> None:
    nowhere = Host(boot="b", machine="")
    assert not Host(boot="a", machine="").is_earlier_boot(nowhere)
    assert not Host(boot="", machine="").is_same_boot(Host(boot="", machine=""))
    assert Host(boot="a", machine="m").is_earlier_boot(Host(boot="b", machine="m"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": "r1"}', "null"])
def test_a_note_that_cannot_be_read_proves_nothing_and_breaks_nothing(locks: StateLocks, text: str) -> None:
    leave(locks).write_text(text)
    assert locks.judge(LEFT).orphan_of is None


def test_somebody_who_runs_the_engine_by_hand_may_be_the_holder(locks: StateLocks) -> None:
    leave(locks)
    name = Path("/proc/self/comm").read_text().strip()
    verdict = replace(locks, engines=frozenset({name})).judge(LEFT)
    assert verdict.orphan_of is None
    assert "runs the engine by hand on this host" in verdict.why
    assert os.getpid() in strangers([name])


def test_a_command_that_ended_by_itself_leaves_no_note_and_clears_away_the_dead(locks: StateLocks) -> None:
    leave(locks)
    with locks.noting(BEGAN) as holding:
        holding.is_over = True
    assert locks.knows_of_dead  # it never had the lock, so that it may still be the dead one's
    with locks.noting(BEGAN) as holding:
        holding.held(HELD.isoformat())
        holding.is_over = True
    assert not locks.knows_of_dead


def test_only_the_first_word_of_the_engine_counts(locks: StateLocks) -> None:
    with locks.noting(BEGAN) as holding:
        holding.held("no time")
        holding.held("2026-05-04T12:00:00")  # of an unknown zone
        assert holding.note.held_at is None
        holding.held("2026-05-04T14:00:02.000000+02:00")
        holding.held("2026-05-04T13:00:00Z")
        assert holding.note.held_at == HELD


def test_without_a_folder_nothing_is_noted_and_nothing_ever_proved() -> None:
    locks = StateLocks(root=None, state="here", who=US, engines=frozenset())
    with locks.noting(BEGAN) as holding:
        holding.held(HELD.isoformat())
        assert holding.fds == ()
    assert not locks.knows_of_dead
    assert locks.judge(LEFT).why == "nothing was noted here"


def test_a_folder_that_cannot_be_written_costs_no_run(tmp_path: Path) -> None:
    (tmp_path / "engine").write_text("a file")
    locks = StateLocks(root=tmp_path / "engine", state="here", who=US, engines=frozenset())
    with locks.noting(BEGAN) as holding:
        assert holding.fds == ()
