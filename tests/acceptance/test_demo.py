"""`gitops demo` as a person runs it: it tells its story, ends with `demo: ok`, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import eventually
from tests.support.redis_server import require_redis_binary

pytest.importorskip("supervisor")
pytest.importorskip("fastapi")
pytestmark = [pytest.mark.timeout(300)]

END_SECONDS = 240


@dataclass
class Demo:
    """A demo that runs in a temporary folder of its own."""

    temporary: Path
    home: Path
    process: "subprocess.Popen[str]"
    out: Path
    err: Path

    def said(self) -> str:
        return self.out.read_text(encoding="utf-8")

    def processes(self) -> list[int]:
        """Everything that was started with this temporary folder, and still lives."""
        mark = os.fsencode(self.temporary)
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def left_behind(self) -> list[object]:
        """Files and processes that should be gone."""
        return [*self.temporary.iterdir(), *self.home.iterdir(), *self.processes()]


@pytest.fixture
def demo(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Demo]:
    require_redis_binary()
    temporary, home = tmp_path / "tmp", tmp_path / "home"
    temporary.mkdir()
    home.mkdir()
    words = list(getattr(request, "param", ["--once"]))
    out, err = tmp_path / "out", tmp_path / "err"
    environ = {**os.environ, "TMPDIR": str(temporary), "HOME": str(home), "LC_ALL": "C"}
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "gitops_reconciler.cli", "demo", *words],
            cwd=home,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
        )
    started = Demo(temporary, home, process, out, err)
    try:
        yield started
    finally:
        process.kill()
        process.wait()
        for pid in started.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.req("R1.47", "R1.51", "R0.69")
def test_once_it_ends_by_itself_with_everything_true_and_nothing_left(demo: Demo) -> None:
    code = demo.process.wait(END_SECONDS)
    said = demo.said()
    assert code == 0, said + demo.err.read_text()
    assert said.splitlines()[-1] == "demo: ok"
    for truth in (
        r"ok all targets ran for [0-9a-f]{40}, asked for by the webhook",
        r"ok drifted: expected 'hello, world', actual 'vandalised'",
        r"ok one apply all the same: its log has one start and one stop of version 2",
        r"ok alert, signature checked: default/banner failed: .*No such file or directory",
        r"ok alert, signature checked: default/banner recovered",
        r"ok default/note is stale, and \S+/note is still there",
    ):
        assert re.search(truth, said), said
    assert demo.err.read_text() == ""
    assert demo.left_behind() == []


@pytest.mark.parametrize("demo", [[]], indirect=True)
def test_it_stays_until_ctrl_c_and_then_leaves_nothing(demo: Demo) -> None:
    assert eventually(lambda: "stays up until Ctrl-C" in demo.said(), within=END_SECONDS), demo.said()
    assert demo.process.poll() is None
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(END_SECONDS) == 0
    assert demo.said().splitlines()[-1] == "demo: ok"
    assert demo.left_behind() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_the_middle_it_leaves_nothing(demo: Demo, number: signal.Signals) -> None:
    assert eventually(lambda: "A push is applied" in demo.said(), within=END_SECONDS), demo.said()
    demo.process.send_signal(number)
    assert demo.process.wait(END_SECONDS) == 130
    assert "demo: ok" not in demo.said()
    assert demo.left_behind() == []


def test_a_fleet_that_dies_fails_the_demo_loudly_with_its_log(demo: Demo) -> None:
    assert eventually(lambda: "A push is applied" in demo.said(), within=END_SECONDS), demo.said()
    (up,) = [pid for pid in demo.processes() if b"\0up\0--port\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(up, signal.SIGKILL)
    assert demo.process.wait(END_SECONDS) == 1
    told = demo.err.read_text()
    assert re.search(r"demo: failed: .* \(`gitops up` has ended\)\n", told)
    assert "worker-1 | " in told
    assert eventually(lambda: demo.left_behind() == [])
