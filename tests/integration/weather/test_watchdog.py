"""A worker that hangs is ended and started again, its runs go on; one that has a reason to be silent is left alone."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_workers.watchdog import DEAF as TOLD_DEAF
from gitops_workers.watchdog import EXIT_CODE, HANGS
from tests.support.processes import eventually, lives
from tests.support.weather import WITHIN, Weather, bad_weather
from tests.support.weather_worker import DEAF, HANG

WATCHDOG_SECONDS = 4.0


@pytest.fixture
def weather(tmp_path: Path) -> Iterator[Weather]:
    environ = {"GITOPS_WORKER_WATCHDOG": f"{WATCHDOG_SECONDS}s", "GITOPS_LEASE_TTL": "40s"}
    with bad_weather(tmp_path, environ) as made:
        yield made


def test_a_worker_that_hangs_or_takes_nothing_ends_to_be_started_again_and_its_runs_go_on(weather: Weather) -> None:
    hung = weather.worker()
    with weather.held():
        weather.ask("default/d-long")
        assert weather.has_run("default/d-long")
        weather.client.set(HANG, "-1")
        assert hung.process.wait(WITHIN) == EXIT_CODE
        (told,) = [line for line in hung.text().splitlines() if "critical" in line]
        assert HANGS in told
        assert "weather_worker.py" in told  # where the loop stands
        assert lives(weather.run_process("default/d-long"))

        deaf = weather.worker()
        weather.client.set(DEAF, "1")
        assert eventually(lambda: not weather.client.exists(DEAF), within=WITHIN)
        for name in ("one", "two"):
            weather.ask(f"default/{name}")
        assert deaf.process.wait(WITHIN) == EXIT_CODE
        assert TOLD_DEAF in deaf.text()

        weather.worker()
        assert weather.is_ready("default/two")
    assert weather.is_ready("default/d-long")
    assert weather.runs("default/d-long") == 1


def test_silence_with_a_reason_ends_no_worker(weather: Weather) -> None:
    worker = weather.worker(GITOPS_WORKER_SLOTS="1")
    with weather.held():
        weather.ask("default/d-long")
        assert weather.has_run("default/d-long")
        weather.ask("default/waits")  # all slots are taken, for all of the time
        weather.client.set(HANG, str(WATCHDOG_SECONDS / 2))
        assert eventually(lambda: not weather.client.exists(HANG), within=WITHIN)
        freeze(weather, worker.pid, WATCHDOG_SECONDS + 1)
        weather.server.stop(signal.SIGKILL)  # and the loop stands, since the worker does nothing but try to connect
        back = time.monotonic() + WATCHDOG_SECONDS + 2
        assert eventually(lambda: time.monotonic() > back or worker.process.poll() is not None, within=WITHIN)
        weather.server.start()
    assert weather.is_ready("default/waits")
    with weather.held():
        weather.ask("default/d-long")
        assert weather.has_run("default/d-long", 2)
        worker.ask_to_end()
        weather.let_pass(WATCHDOG_SECONDS + 1)
    assert worker.process.wait(WITHIN) == 0
    assert "critical" not in worker.text()


def freeze(weather: Weather, pid: int, seconds: float) -> None:
    """Stop a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        weather.let_pass(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)
