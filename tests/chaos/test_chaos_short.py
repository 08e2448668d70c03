"""The short campaign: half a minute of faults on a small fleet. `make chaos` is the long one (docs/reliability.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import campaign, report
from tests.chaos.plan import Plan

pytest.importorskip("celery")
pytest.importorskip("fastapi")

SEED = 147
FAULTS = 8


@pytest.mark.timeout(600)
def test_a_fleet_under_faults_keeps_every_promise(tmp_path: Path) -> None:
    plan = Plan(seed=SEED, fault_seconds=25.0, targets=40, quiet_seconds=240.0)
    result = campaign.run(plan, tmp_path / "chaos")
    told = "\n".join(report.lines(result))
    assert result.verdict.is_good, f"{told}\nfiles: {result.folder}"
    assert result.faults >= FAULTS, told
