"""Real processes: groups, deadlines, interruption, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import DeadlineExceededError, InterruptedRunError, ReconcileError, ToolMissingError
from gitops_reconciler.processes import Finished, SubprocessRunner, popen
from gitops_reconciler.processes.ending import MARK, Watcher
from gitops_reconciler.redaction import Redactor
from tests.support.processes import eventually, lives, pid_in

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
NO_END = Deadline()
STUBBORN = "trap '' INT TERM; sleep 600 & echo $! > child.pid; echo $$ > tool.pid; wait; wait; wait"


def run(tmp_path: Path, script: str, *, runner: SubprocessRunner | None = None, **more: object) -> Finished:
    arguments: dict[str, object] = {"cwd": tmp_path, "env": ENV, "deadline": NO_END, **more}
    return (runner or SubprocessRunner()).run(["sh", "-c", script], **arguments)  # type: ignore[arg-type]  # a test's keywords


@pytest.fixture(params=[True, False], ids=["own-group", "shared-group"])
def own_group(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_command_runs_in_its_folder_with_exactly_its_environment(tmp_path: Path, own_group: bool) -> None:
    finished = run(
        tmp_path,
        "pwd; env; echo oops >&2; exit 7",
        runner=SubprocessRunner(own_group=own_group),
        env={**ENV, "ONLY": "this"},
    )
    assert finished.returncode == 7
    assert finished.stdout.splitlines()[0] == str(tmp_path.resolve())
    assert "ONLY=this" in finished.stdout
    assert "HOME=" not in finished.stdout
    assert finished.stderr == "oops\n"
    assert finished.argv[0] == "sh"


@pytest.mark.req("R0.60")
def test_without_input_a_tool_reads_nothing_and_has_no_terminal(tmp_path: Path) -> None:
    finished = run(tmp_path, "read -r line; echo \"got=$line\"; sh -c ': < /dev/tty' 2>/dev/null || echo no terminal")
    assert finished.stdout == "got=\nno terminal\n"


def test_input_larger_than_a_pipe_arrives_while_output_is_read(tmp_path: Path) -> None:
    data = b"0123456789abcde\n" * 100_000
    finished = run(tmp_path, "cat", stdin=data)
    assert finished.stdout.encode() == data


def test_a_tool_that_does_not_read_its_input_is_no_error(tmp_path: Path) -> None:
    assert run(tmp_path, "exec <&-; echo done", stdin=b"x" * (1 << 20)).stdout == "done\n"


def test_lines_are_passed_on_while_the_tool_runs(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    def answer(stream: str, line: str) -> None:
        seen.append((stream, line))
        (tmp_path / "go").write_text("")

    finished = run(tmp_path, "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second >&2", on_line=answer)
    assert finished.returncode == 0
    assert seen == [("stdout", "first"), ("stderr", "second")]


def test_known_secrets_are_masked_and_raw_data_keeps_them(tmp_path: Path) -> None:
    seen: list[str] = []
    finished = run(
        tmp_path,
        "printf 'pass=s3cr3t-'; printf 'value\\n'; echo s3cr3t-value >&2",
        runner=SubprocessRunner(redactor=Redactor(["s3cr3t-value"])),
        on_line=lambda _, line: seen.append(line),
    )
    assert finished.stdout == "pass=***\n"
    assert finished.stderr == "***\n"
    assert sorted(seen) == ["***", "pass=***"]
    assert finished.data == "pass=s3cr3t-value\n"


def test_of_endless_output_both_ends_are_kept(tmp_path: Path) -> None:
    finished = run(tmp_path, "seq 1 200000", runner=SubprocessRunner(output_limit=2000))
    assert finished.is_cut
    assert finished.stdout.startswith("1\n2\n")
    assert finished.stdout.endswith("199999\n200000\n")
    assert len(finished.stdout) < 2200


@pytest.mark.req("R0.56")
def test_a_missing_tool_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError, match=r"'no-such-tool' was not found on PATH \(.+\)"):
        SubprocessRunner().run(["no-such-tool"], cwd=tmp_path, env=ENV, deadline=NO_END)


def test_a_tool_is_found_by_the_path_of_its_own_environment(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "hello"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho hello\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tool.parent}:{ENV['PATH']}"}
    assert SubprocessRunner().run(["hello"], cwd=tmp_path, env=env, deadline=NO_END).stdout == "hello\n"


def test_a_file_that_cannot_be_executed_is_an_error_of_ours(tmp_path: Path) -> None:
    tool = tmp_path / "broken"
    tool.write_bytes(b"\x7fELF nonsense")
    tool.chmod(0o755)
    with pytest.raises(ReconcileError, match="could not be started"):
        SubprocessRunner().run([str(tool)], cwd=tmp_path, env=ENV, deadline=NO_END)


def test_a_missing_folder_is_not_mistaken_for_a_missing_tool(tmp_path: Path) -> None:
    with pytest.raises(ReconcileError, match=r"the folder '.*nowhere' does not exist"):
        SubprocessRunner().run(["true"], cwd=tmp_path / "nowhere", env=ENV, deadline=NO_END)


def test_nothing_is_started_once_the_deadline_is_over(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceededError, match="was not started"):
        run(tmp_path, "touch ran", deadline=Deadline.after(-1))
    assert not (tmp_path / "ran").exists()


@pytest.mark.req("R0.57")
def test_an_overdue_tool_is_interrupted_first(tmp_path: Path, own_group: bool) -> None:
    runner = SubprocessRunner(own_group=own_group)
    script = "trap 'echo cleaned > cleaned; exit 1' INT; while :; do sleep 0.05; done"
    with pytest.raises(DeadlineExceededError, match=r"'sh' timed out after \d"):
        run(tmp_path, script, runner=runner, deadline=Deadline.after(0.5))
    assert (tmp_path / "cleaned").exists()


@pytest.mark.req("R0.57")
def test_an_overdue_tool_that_ignores_signals_is_killed_with_its_children(tmp_path: Path, own_group: bool) -> None:
    runner = SubprocessRunner(own_group=own_group, grace_seconds=0.2)
    with pytest.raises(DeadlineExceededError):
        run(tmp_path, STUBBORN, runner=runner, deadline=Deadline.after(0.5))
    assert eventually(lambda: not lives(pid_in(tmp_path / "child.pid")), within=5)
    assert not lives(pid_in(tmp_path / "tool.pid"))


@pytest.mark.req("R0.57")
def test_a_background_child_that_ignores_the_interrupt_goes_with_its_group(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError):
        run(tmp_path, "sleep 600 & echo $! > child.pid; wait", deadline=Deadline.after(0.3))
    assert not lives(pid_in(tmp_path / "child.pid"))
    assert time.monotonic() - started < 10  # not the grace of 25 s


def test_what_a_finished_tool_leaves_in_its_group_is_ended_and_does_not_hold_us_up(tmp_path: Path) -> None:
    started = time.monotonic()
    finished = run(tmp_path, "sleep 600 & echo $! > child.pid; echo done")
    assert finished.stdout == "done\n"
    assert not lives(pid_in(tmp_path / "child.pid"))
    assert time.monotonic() - started < 10


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="without /proc only the group is known")
@pytest.mark.parametrize("leave", ["setsid sh -c", "setsid setsid nohup sh -c"])
def test_an_overdue_tool_takes_along_what_left_its_group(tmp_path: Path, own_group: bool, leave: str) -> None:
    runner = SubprocessRunner(own_group=own_group, grace_seconds=0.2)
    leaver = f"{leave} 'echo $$ > child.pid; trap \"\" INT TERM; while :; do sleep 1; done'"
    script = f"{leaver} & {STUBBORN.replace('child', 'other')}"
    with pytest.raises(DeadlineExceededError):
        run(tmp_path, script, runner=runner, deadline=Deadline.after(0.5))
    assert eventually(lambda: not lives(pid_in(tmp_path / "child.pid")), within=5)


def test_a_daemon_that_left_its_group_outlives_a_good_end(tmp_path: Path) -> None:
    run(tmp_path, "setsid sh -c 'echo $$ > child.pid; exec sleep 600' & while [ ! -s child.pid ]; do sleep 0.01; done")
    child = pid_in(tmp_path / "child.pid")
    assert lives(child)
    os.kill(child, signal.SIGKILL)


def test_in_a_shared_group_leftovers_are_the_supervisors_business(tmp_path: Path) -> None:
    finished = run(tmp_path, "sleep 600 & echo $! > child.pid; echo done", runner=SubprocessRunner(own_group=False))
    child = pid_in(tmp_path / "child.pid")
    assert finished.stdout == "done\n"
    assert lives(child)
    os.kill(child, signal.SIGKILL)


def test_the_group_is_our_own_only_in_a_shared_group(tmp_path: Path, own_group: bool) -> None:
    finished = run(
        tmp_path, "ps -o pgid= -p $$ || cut -d' ' -f5 /proc/$$/stat", runner=SubprocessRunner(own_group=own_group)
    )
    assert (int(finished.stdout) == os.getpgrp()) is not own_group


def test_the_lock_is_inherited_by_tools(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        finished = run(tmp_path, f"readlink /proc/self/fd/{lock}", runner=SubprocessRunner(lock_fd=lock))
        assert finished.stdout.strip() == str((tmp_path / "lock").resolve())
    finally:
        os.close(lock)


def test_an_error_while_lines_are_handled_ends_the_tool_first(tmp_path: Path) -> None:
    def broken(_stream: str, _line: str) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run(tmp_path, "echo $$ > tool.pid; echo line; exec sleep 600", on_line=broken)
    assert not lives(pid_in(tmp_path / "tool.pid"))


def test_threads_run_tools_at_the_same_time(tmp_path: Path) -> None:
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda n=number: results.append(run(tmp_path, f"echo {n}").stdout))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert sorted(results) == [f"{number}\n" for number in range(8)]


class Program:
    """A Python process of its own that runs one tool, so that it can be signalled and killed."""

    def __init__(
        self,
        folder: Path,
        script: str,
        *,
        own_group: bool,
        grace: float = 5.0,
        on_interrupt: str = "default_int_handler",
        deadline: str = "Deadline()",
    ) -> None:
        code = f"""
            import os, signal
            from pathlib import Path
            from gitops_reconciler.clock import Deadline
            from gitops_reconciler.processes import SubprocessRunner
            signal.signal(signal.SIGINT, signal.{on_interrupt})
            runner = SubprocessRunner(own_group={own_group}, grace_seconds={grace})
            folder = Path({str(folder)!r})
            try:
                runner.run(["sh", "-c", {script!r}], cwd=folder, env=dict(os.environ), deadline={deadline})
            except BaseException as error:
                (folder / "error").write_text(type(error).__name__ + "\\n")
        """
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], start_new_session=True)

    def error(self) -> str:
        self.process.wait(timeout=20)
        return (self.folder / "error").read_text().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Program]:
    def start(script: str, *, own_group: bool, **more: Any) -> Program:
        made = Program(tmp_path, script, own_group=own_group, **more)
        request.addfinalizer(made.end)
        return made

    return start


def test_a_tool_and_its_children_die_with_us(tmp_path: Path, program: Callable[..., Program]) -> None:
    made = program("sleep 600 & echo $! > child.pid; echo $$ > tool.pid; wait", own_group=True, grace=1.0)
    tool, child = pid_in(tmp_path / "tool.pid"), pid_in(tmp_path / "child.pid")
    made.process.kill()
    assert eventually(lambda: not lives(tool))
    assert eventually(lambda: not lives(child)), "the background child ignores SIGINT and goes after the grace"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="without /proc only the group is known")
def test_what_left_the_tools_group_dies_with_us(tmp_path: Path, program: Callable[..., Program]) -> None:
    made = program(
        "setsid sh -c 'echo $$ > child.pid; trap \"\" INT; exec sleep 600' & wait", own_group=True, grace=1.0
    )
    child = pid_in(tmp_path / "child.pid")
    made.process.kill()
    assert eventually(lambda: not lives(child))


def test_when_we_die_a_tool_is_interrupted_before_it_is_killed(tmp_path: Path, program: Callable[..., Program]) -> None:
    script = "trap 'echo yes > cleaned; exit 1' INT; echo $$ > tool.pid; while :; do sleep 0.05; done"
    made = program(script, own_group=True)
    tool = pid_in(tmp_path / "tool.pid")
    made.process.kill()
    assert eventually(lambda: not lives(tool))
    assert (tmp_path / "cleaned").exists()


def test_an_interrupt_of_ours_is_forwarded_once_and_then_raised(
    tmp_path: Path, program: Callable[..., Program]
) -> None:
    script = "trap 'echo int >> count; exit 1' INT; echo $$ > tool.pid; while :; do sleep 0.05; done"
    made = program(script, own_group=True)
    tool = pid_in(tmp_path / "tool.pid")
    made.process.send_signal(signal.SIGINT)
    assert made.error() == "KeyboardInterrupt"
    assert (tmp_path / "count").read_text() == "int\n"
    assert not lives(tool)


def test_a_second_interrupt_kills_at_once(tmp_path: Path, program: Callable[..., Program]) -> None:
    script = STUBBORN.replace("trap '' INT TERM", "trap 'echo yes > heard' INT; trap '' TERM")
    made = program(script, own_group=True, grace=600)
    tool, child = pid_in(tmp_path / "tool.pid"), pid_in(tmp_path / "child.pid")
    made.process.send_signal(signal.SIGINT)
    assert eventually((tmp_path / "heard").exists)
    made.process.send_signal(signal.SIGINT)
    assert made.error() == "KeyboardInterrupt"
    assert eventually(lambda: not lives(tool) and not lives(child))


def test_an_overdue_tool_is_interrupted_also_where_we_ignore_interrupts(
    tmp_path: Path, program: Callable[..., Program]
) -> None:
    script = "trap 'echo yes > cleaned; exit 1' INT; echo $$ > tool.pid; while :; do sleep 0.05; done"
    made = program(script, own_group=True, grace=600, on_interrupt="SIG_IGN", deadline="Deadline.after(1)")
    tool = pid_in(tmp_path / "tool.pid")
    made.process.send_signal(signal.SIGINT)  # ignored, as before
    assert made.error() == DeadlineExceededError.__name__
    assert (tmp_path / "cleaned").exists()
    assert not lives(tool)


def test_in_a_shared_group_an_interrupt_is_not_forwarded_but_waited_for(
    tmp_path: Path, program: Callable[..., Program]
) -> None:
    script = "trap 'echo int >> count' INT; echo $$ > tool.pid; while [ ! -e go ]; do sleep 0.05; done; echo end > end"
    made = program(script, own_group=False)
    tool = pid_in(tmp_path / "tool.pid")
    os.kill(made.process.pid, signal.SIGINT)  # to us alone: a forwarded one would show in the count
    (tmp_path / "go").touch()
    assert made.error() == InterruptedRunError.__name__
    assert (tmp_path / "end").exists()
    assert not (tmp_path / "count").exists()
    assert not lives(tool)


def test_in_a_shared_group_the_groups_interrupt_reaches_the_tool_exactly_once(
    tmp_path: Path, program: Callable[..., Program]
) -> None:
    script = "trap 'echo int >> count; exit 0' INT; echo $$ > tool.pid; while :; do sleep 0.05; done"
    made = program(script, own_group=False)
    pid_in(tmp_path / "tool.pid")
    os.killpg(made.process.pid, signal.SIGINT)
    assert made.error() == InterruptedRunError.__name__
    assert (tmp_path / "count").read_text() == "int\n"


def test_a_started_server_lives_on_beside_us(tmp_path: Path) -> None:
    server = popen(["sleep", "600"], cwd=tmp_path, env=ENV, new_session=True)
    try:
        assert lives(server.pid)
        assert os.getsid(server.pid) == server.pid
    finally:
        server.kill()
        server.wait()


def test_a_missing_server_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError, match="'no-such-server'"):
        popen(["no-such-server"], cwd=tmp_path, env=ENV)


def test_a_tool_does_not_die_by_its_next_line_when_its_reader_is_killed(tmp_path: Path) -> None:
    talks = "echo $$ > tool.pid; while [ ! -e go ]; do sleep 0.05; done; echo out; echo err >&2; echo said > alive.pid"
    code = textwrap.dedent(f"""
        from pathlib import Path
        from gitops_reconciler.clock import Deadline
        from gitops_reconciler.processes import SubprocessRunner
        SubprocessRunner(own_group=False).run(["sh", "-c", {talks!r}], cwd=Path({str(tmp_path)!r}), env={ENV!r},
                                              deadline=Deadline())
    """)
    reader = subprocess.Popen([sys.executable, "-c", code])
    tool = pid_in(tmp_path / "tool.pid", within=30)
    reader.kill()
    reader.wait()

    (tmp_path / "go").touch()

    assert eventually(lambda: not lives(tool), within=30)
    assert (tmp_path / "alive.pid").read_text() == "said\n"


def test_a_tool_that_had_just_begun_when_we_died_is_interrupted_too(tmp_path: Path) -> None:
    mark = "0123456789abcdef0123456789abcdef"
    watcher = Watcher(mark=mark, grace_seconds=1, pass_fds=())
    script = "trap 'echo yes > cleaned; exit 1' INT; echo $$ > tool.pid; while :; do sleep 0.05; done"
    tool = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, env={**ENV, MARK: mark}, start_new_session=True)
    pid_in(tmp_path / "tool.pid", within=30)
    assert watcher._shell.stdin is not None

    watcher._shell.stdin.close()  # as our death would, before we told it of the tool

    assert tool.wait(30) == 1
    assert (tmp_path / "cleaned").exists()
    assert watcher._shell.wait(30) == 0
