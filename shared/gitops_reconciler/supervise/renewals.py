"""The arithmetic of one lease: what was sent when, what was confirmed, and until when the run may go on."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from gitops_reconciler.clock import boottime
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.supervise.board import Board
from gitops_reconciler.supervise.order import Lease, Order, RunEnd
from gitops_reconciler.work.base import Renewal

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_MOST_BUGS = 4
_BUGS_OF_THE_WHOLE = 2


class Renewals:
    """Renews one lease and keeps `board.interrupt_at`, which counts from when the last confirmed one was *sent*."""

    def __init__(self, lease: Lease, order: Order, board: Board) -> None:
        self._lease, self._order, self._board = lease, order, board
        self._next_at = order.claimed_at + order.renewal_seconds
        self._is_lost = False
        self._bugs = 0
        self._confirm(order.claimed_at)

    def _confirm(self, sent_at: float) -> None:
        self._confirmed_at = sent_at
        self._board.interrupt_at = sent_at + self._order.window_seconds

    @property
    def pause_seconds(self) -> float:
        """How long until the next renewal; infinite when there will be none."""
        return float("inf") if self._is_lost else max(0.0, self._next_at - boottime())

    def turn(self) -> None:
        """Renew if it is time. Refused: the run is due to be interrupted, now."""
        if self._is_lost or boottime() < self._next_at:
            return
        sent_at = boottime()
        self._next_at = sent_at + self._order.renewal_seconds
        try:
            self._is_lost = self._lease.renew() is Renewal.LOST
        except Exception as error:  # noqa: BLE001  # whatever goes wrong here must not end the watch over the run
            self._next_at = boottime() + min(self._order.renewal_seconds, _RETRY_SECONDS)
            self._complain("the lease was not confirmed, trying again", error)
            return
        if self._is_lost:
            self._board.interrupt_at = boottime()
            self._complain("the lease is lost, the run is interrupted", None)
        else:
            self._confirm(sent_at)

    def complete(self, ended: RunEnd) -> None:
        """Offer the end of the run until the store takes or refuses it, or patience and lease both are over.

        Who was asked to stop has no patience beyond the lease. A lease that fails in another way than its contract
        knows has a bug, which more tries won't mend: after two of them the bare end is offered, without what the run
        process said, and after four none.
        """
        lease_ends_at = self._confirmed_at + self._order.ttl_seconds
        until = max(lease_ends_at, boottime() + self._order.patience_seconds)
        pause = _FIRST_PAUSE_SECONDS
        while not self._offer(ended if self._bugs < _BUGS_OF_THE_WHOLE else _bare(ended)):
            self._board.supervisor_beat = boottime()
            if self._bugs >= _MOST_BUGS:
                self._complain("the end of the run can not be written, the run will count as lost", None)
                return
            if boottime() + pause > (lease_ends_at if self._board.is_stop_asked else until):
                self._complain("the store did not answer for too long, the run will count as lost", None)
                return
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _offer(self, ended: RunEnd) -> bool:
        """Offer the end once; False: it was neither taken nor refused."""
        try:
            is_taken = self._lease.complete(ended)
        except StoreUnavailableError as error:
            self._complain("the store does not answer, the end of the run is offered again", error)
            return False
        except Exception as error:  # noqa: BLE001  # a bug of the lease must not cost an applied run its record
            self._bugs += 1
            self._complain("the end of the run could not be written", error)
            return False
        if not is_taken:
            self._complain("the end of the run was refused: its lease is gone", None)
        return True

    def _complain(self, event: str, error: Exception | None) -> None:
        fields = {"run": self._order.run, "item": self._order.item, "error": str(error) if error else ""}
        _log.warning(event, exc_info=error is not None and not isinstance(error, StoreUnavailableError), extra=fields)


def _bare(ended: RunEnd) -> RunEnd:
    """Return the end without what the run process said."""
    return replace(ended, result=None, failure="its result could not be written, see the log")
