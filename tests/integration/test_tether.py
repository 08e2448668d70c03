"""The tether of `gitops up`: a child dies with its parent, never shares its data, and waits for the server."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gitops_reconciler.cli.up import tether
from tests.support.processes import eventually, lives, pid_in
from tests.support.redis_server import running_redis

TETHER = [sys.executable, "-I", "-S", tether.__file__]


def start(*arguments: str, parent: int | None = None) -> subprocess.Popen[str]:
    command = [*TETHER, "--parent", str(os.getpid() if parent is None else parent), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_becomes_the_program_and_keeps_its_number() -> None:
    process = start("--", "/bin/sh", "-c", "echo $$")
    out, _ = process.communicate(timeout=10)
    assert int(out) == process.pid


def test_it_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen({TETHER!r} + ['--parent', str(os.getpid()), '--', '/bin/sleep', '60'])\n"
        "print(child.pid, file=open(sys.argv[1], 'w'), flush=True)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "pid")])
    child = pid_in(tmp_path / "pid")
    assert eventually(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes())
    parent.kill()
    parent.wait()
    assert eventually(lambda: not lives(child))


def test_it_ends_at_once_when_its_parent_was_faster() -> None:
    assert start("--", "/bin/sleep", "60", parent=1 << 22).wait(10) < 0


def test_the_lock_lives_as_long_as_the_program_and_the_next_one_waits_for_it(tmp_path: Path) -> None:
    lock = tmp_path / "server.lock"
    first = start("--lock", str(lock), "--", "/bin/sh", "-c", "echo begun; read -r _; exec /bin/sleep 60")
    assert first.stdout is not None
    assert first.stdout.readline() == "begun\n"
    second = start("--lock", str(lock), "--", "/bin/sh", "-c", "echo begun")
    assert second.stderr is not None
    assert "waiting for the end of an earlier server" in second.stderr.readline()
    assert second.poll() is None
    first.kill()
    first.communicate()
    out, _ = second.communicate(timeout=10)
    assert out == "begun\n"
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_it_waits_until_the_server_answers(tmp_path: Path) -> None:
    with running_redis() as server:
        server.stop()
        process = start("--socket", str(server.socket), "--", "/bin/sh", "-c", "echo begun")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        server.start()
        out, _ = process.communicate(timeout=10)
        assert out == "begun\n"
