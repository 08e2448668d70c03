"""What supervision costs: starting `true` plainly, and as a supervised run until all of it is gone.

Run it as a script, or call `measure`. The two are interleaved, so that a busy moment of the machine hits both.
"""

import contextlib
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gitops_reconciler.clock import boottime
from gitops_reconciler.processes import popen
from gitops_reconciler.supervise.order import Lease, Order, RunEnd
from gitops_reconciler.supervise.zygote import Zygote
from gitops_reconciler.work.base import Renewal

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
WARM_UP = 3


class NoLease:
    """A store that costs nothing."""

    def renew(self) -> Renewal:
        return Renewal.HELD

    def complete(self, ended: RunEnd) -> bool:
        return True


class TrueParts:
    """A body that starts `true`."""

    def lease(self, order: Order) -> Lease:
        return NoLease()

    def body(self, order: Order, lock_fd: int) -> dict[str, Any]:
        run_true(lock_fd)
        return {"result": "no_change"}


def run_true(*fds: int) -> None:
    popen(["true"], cwd=ROOT, env=ENVIRONMENT, pass_fds=fds).wait()


def measure(pairs: int) -> list[tuple[float, float]]:
    """Seconds of (plain, supervised), so many times, after a short warm-up."""
    with tempfile.TemporaryDirectory(prefix="run-cost-") as folder, _zygote() as zygote:
        found = [(_timed_plain(), _timed_supervised(zygote, Path(folder))) for _ in range(pairs + WARM_UP)]
    return found[WARM_UP:]


def _zygote() -> contextlib.AbstractContextManager[Zygote]:
    return Zygote("tests.bench.run_cost:TrueParts", ENVIRONMENT)


def _timed_plain() -> float:
    begin = time.perf_counter()
    run_true()
    return time.perf_counter() - begin


def _timed_supervised(zygote: Zygote, folder: Path) -> float:
    order = _order(folder)
    begin = time.perf_counter()
    was_seen_through = zygote.start(order).wait()
    seconds = time.perf_counter() - begin
    if not was_seen_through:
        raise RuntimeError(f"the run did not end well, see {order.log}")
    return seconds


def _order(folder: Path) -> Order:
    return Order(
        run=uuid.uuid4().hex, item="default/true", kind="resources", token=1, generation=1,
        ttl_seconds=60, renewal_seconds=10, grace_seconds=25, deadline_seconds=3600, claimed_at=boottime(),
        lock=str(folder / "true.lock"), leftover=str(folder / "true.run"), log=str(folder / "true.log"),
    )  # fmt: skip


def _lines(found: list[tuple[float, float]]) -> Iterator[str]:
    columns = {"plain": [plain for plain, _ in found], "supervised": [supervised for _, supervised in found]}
    columns["added"] = [supervised - plain for plain, supervised in found]
    for name, seconds in columns.items():
        ordered = sorted(1000 * value for value in seconds)
        p95 = ordered[int(len(ordered) * 0.95)]
        yield f"{name:12} median {statistics.median(ordered):6.2f} ms   p95 {p95:6.2f} ms   max {ordered[-1]:6.2f} ms"


if __name__ == "__main__":
    print("\n".join(_lines(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100))))
