"""Bench `terraform`: a no-op tick with its git sync, against a bare no-op `terraform apply` in the same checkout.

A tick here is what happens between a claim and its completion, both included, as the run process does it and in this
process: fetch into the mirror, checkout, bind, apply, outputs. What supervision adds is the bench `run`.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from gitops_reconciler.clock import SystemClock
from gitops_reconciler.outcomes import RunState, Trigger
from gitops_reconciler.runs.launching import order_of
from gitops_reconciler.runs.lease import WorkLease
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.sources import SourceRegistration, register_source
from gitops_reconciler.supervise.order import Interruption, Order, RunEnd
from gitops_reconciler.wiring import Fleet, FleetParts
from gitops_reconciler.work.base import Cause, Claim
from tests.bench.base import Bench, CannotRunError, Effort
from tests.bench.children import environment
from tests.bench.pairs import Measure, Pair, interleaved
from tests.bench.stores import bench_redis
from tests.support.git_repos import GitUpstream

TARGET = "default/net"
_FILES = {
    "gitops/net.yaml": "type: resource\nkind: terraform\nname: net\npath: stacks/net\ninterval: 1h\n",
    "stacks/net/main.tf": """
variable "names" {
  default = ["a", "b", "c"]
}

resource "terraform_data" "part" {
  for_each = toset(var.names)
  input    = each.key
}

output "parts" {
  value = [for part in terraform_data.part : part.output]
}
""",
}
_SECONDS = 60.0
_ROUNDS_A_PAIR = 3
_NO_WORDS = {"CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Runs items in this process."""

    settings: Settings
    fleet: Fleet
    parts: FleetParts

    def run(self, item: str) -> tuple[float, dict[str, Any]]:
        """Ask for the item, claim it, run it, complete it; returns the seconds since the claim, and what came of it."""
        self.fleet.work.request([item], Cause(trigger=Trigger.MANUAL))
        begin = time.perf_counter()
        claim = self.fleet.work.claim(item, uuid.uuid4().hex, ttl_ms=60_000, holder=platform.node())
        assert isinstance(claim, Claim), f"{item} was not claimed: {claim.value}"
        order = order_of(claim, self.settings, self.settings.layout)
        line = self._body(order)
        now = SystemClock().now().isoformat()
        end = RunEnd(result=line, exit=0, interrupted=Interruption.NONE, started_at=now, ended_at=now)
        if not WorkLease(work=self.fleet.work, order=order, clock=SystemClock()).complete(end):
            raise RuntimeError(f"the end of {item} was refused")
        return time.perf_counter() - begin, line

    def _body(self, order: Order) -> dict[str, Any]:
        lock = Path(order.lock)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with (
            lock.open("a") as held,
            Path(order.log).open("w", encoding="utf-8") as log,
            contextlib.redirect_stdout(log),
        ):
            return self.parts.body(order, held.fileno())

    def seconds_of_no_op(self) -> float:
        """Return the seconds of one tick that found nothing to change."""
        seconds, line = self.run(TARGET)
        _require(line, RunState.NO_CHANGE)
        return seconds


def run(effort: Effort) -> list[Pair]:
    """Measure both in turns."""
    tool = shutil.which("terraform")
    if tool is None:
        raise CannotRunError("no terraform (make terraform)")
    with _ticks() as ticks:
        folder = ticks.settings.layout.tree(TARGET) / "stacks" / "net"
        pairs = effort.pairs * effort.work(_ROUNDS_A_PAIR)
        return interleaved(ticks.seconds_of_no_op, lambda: _seconds_of_bare_apply(tool, folder), pairs, warm_ups=2)


@contextlib.contextmanager
def _ticks() -> Iterator[Ticks]:
    """A fleet of one target, which is applied."""
    with bench_redis() as url, tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        upstream = GitUpstream.create(folder / "upstream", "infra")
        upstream.publish(_FILES, "Add a network")
        settings = load_settings(redis_url=url, state_dir=folder / "state", git_allow_local=folder)
        settings.layout.logs.mkdir(parents=True)
        # The body reads this process' environment, as it does in a run process.
        with mock.patch.dict(os.environ, environment({}), clear=True):
            ticks = Ticks(settings=settings, fleet=Fleet(settings), parts=FleetParts(settings))
            registration = SourceRegistration(name="default", repo=upstream.url, interval=0)
            register_source(ticks.fleet.store, ticks.fleet.work, registration, settings)
            _require(ticks.run("source:default")[1], RunState.CHANGED)
            _require(ticks.run(TARGET)[1], RunState.CHANGED)
            yield ticks


def _require(line: dict[str, Any], state: RunState) -> None:
    if line["state"] != state:
        raise RuntimeError(f"the run ended {line['state']} and not {state.value}: {line['message']}")


def _seconds_of_bare_apply(tool: str, folder: Path) -> float:
    """Return the seconds of an apply by hand, in an initialised folder; its state lies beside the module."""
    command = [tool, "apply", "-auto-approve", "-input=false", "-no-color"]
    begin = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **_NO_WORDS}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=_SECONDS, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"the bare apply failed: {done.stderr}")
    return seconds


BENCH = Bench(
    name="terraform",
    about="a no-op tick with git sync, against a bare no-op `terraform apply`",
    measure=Measure.ADDED,
    goal=0.150,
    run=run,
)
