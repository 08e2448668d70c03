"""The board: one beginning of the end, and what is due when."""

import sys
from collections.abc import Iterator

import pytest

from gitops_reconciler.supervise.board import Board, _Field
from gitops_reconciler.supervise.order import Interruption

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")


@pytest.fixture
def board() -> Iterator[Board]:
    page_fd, token_fd = Board.create()
    board = Board(page_fd, token_fd)
    board.interrupt_at, board.deadline_at = 200.0, 300.0
    yield board
    board.close()


def test_the_end_begins_once_and_the_first_reason_stays(board: Board) -> None:
    assert board.begin_ending(Interruption.DEADLINE)
    began_at = board.ending_at

    assert not board.begin_ending(Interruption.LEASE)

    assert began_at > 0
    assert (board.reason, board.ending_at) == (Interruption.DEADLINE, began_at)


def test_whoever_finds_the_beginning_taken_but_unwritten_counts_the_grace_from_now(board: Board) -> None:
    assert board.begin_ending(Interruption.LEASE)
    board._fields[_Field.ENDING_AT] = 0.0  # its writer was killed between two steps
    assert board.ending_at == 0

    assert not board.begin_ending(Interruption.STOPPED)

    assert board.ending_at > 0


@pytest.mark.parametrize(("at", "reason"), [(199.9, None), (200.0, Interruption.LEASE), (999.0, Interruption.LEASE)])
def test_a_lease_is_due_from_its_moment_on(board: Board, at: float, reason: Interruption | None) -> None:
    assert board.due(at) is reason


def test_the_earlier_moment_is_the_reason_and_a_wish_beats_both(board: Board) -> None:
    board.deadline_at = 100.0
    assert board.due(500.0) is Interruption.DEADLINE

    board.ask_stop()

    assert board.due(0.0) is Interruption.STOPPED


def test_a_failure_is_kept_in_bounds(board: Board) -> None:
    board.failure = "ä" * 5000 + "\0"

    assert set(board.failure) == {"ä"}
    assert 400 < len(board.failure) < 600
