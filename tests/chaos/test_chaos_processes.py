"""The look at the fleet's processes: whom the faults hit, and what is left at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.processes import scene
from tests.support.processes import eventually, lives


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the campaign in that folder, a worker of host1 by its command line."""
    environ = {**os.environ, "CHAOS_FOLDER": str(tmp_path), "GITOPS_STATE_DIR": str(tmp_path / "host1")}
    command = [sys.executable, "-c", "import time; time.sleep(600)", "worker --name"]
    with subprocess.Popen(command, env=environ, start_new_session=True) as process:
        assert eventually(lambda: process.pid in scene(tmp_path).processes, within=30)
        yield process
        process.kill()


def test_a_process_that_is_left_in_a_session_of_its_own_is_found_and_a_stranger_is_not(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert set(scene(tmp_path).processes) == {sleeper.pid}
    assert not scene(tmp_path / "other").processes


def test_a_dead_one_is_not_left(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    sleeper.kill()
    assert eventually(lambda: not scene(tmp_path).processes, within=30)  # a zombie, not reaped by anybody yet


def test_nobody_is_hit_who_got_the_number_of_a_victim(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (found,) = scene(tmp_path).processes.values()
    assert not replace(found, started="1").send(signal.SIGKILL)
    assert lives(sleeper.pid)
    assert found.send(signal.SIGKILL)


def test_a_worker_is_there_for_what_others_leave_unless_it_is_frozen_or_hit_itself(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (worker,) = scene(tmp_path).processes.values()
    victim = replace(worker, pid=worker.pid + 1, command="gitops-guard")
    assert scene(tmp_path).has_worker_besides([victim])
    assert not scene(tmp_path).has_worker_besides([victim, worker])
    assert not scene(tmp_path).has_worker_besides([replace(victim, host="host2")])
    worker.send(signal.SIGSTOP)
    assert eventually(lambda: not scene(tmp_path).has_worker_besides([victim]), within=30)
