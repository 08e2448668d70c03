"""A zygote for the tests of a module, and runs that are ended whatever happens to their test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.supervise.zygote import Zygote
from tests.support.supervise_runs import ENVIRONMENT, PARTS, Run, Start, cleaned_up, order_in


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote(PARTS, ENVIRONMENT) as zygote:
        yield zygote


@pytest.fixture
def start(zygote: Zygote, tmp_path: Path) -> Iterator[Start]:
    """Starts runs and ends, after the test, whatever is left of them."""
    started: list[Run] = []

    def start(body: str, **fields: Any) -> Run:
        run = Run(fields.pop("zygote", zygote), order_in(tmp_path, body, **fields))
        started.append(run)
        return run

    with cleaned_up(started):
        yield start
