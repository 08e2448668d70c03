"""`gitops` without a server: validate, and ticks of this process on real git."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gitops_reconciler.cli import main
from gitops_reconciler.locks.flock import FileLocks
from gitops_reconciler.settings import load_settings
from tests.support.git_repos import GitUpstream, MakeUpstream, git
from tests.support.processes import eventually, lives, pid_in

KIND = """\
type: manifest
kind: note
schema: {type: object, required: [path, text], properties: {path: {type: string}, text: {type: string}}}
scripts:
  apply: |
    [ "$(cat "$SPEC_PATH" 2>/dev/null)" = "$SPEC_TEXT" ] && { echo "as declared"; exit 0; }
    printf '%s' "$SPEC_TEXT" > "$SPEC_PATH" || exit 1
    echo "wrote $SPEC_TEXT"; exit 3
"""
Printed = pytest.CaptureFixture[str]


def note(path: Path, text: str, name: str = "web") -> str:
    return f"type: resource\nkind: note\nname: {name}\nspec: {{path: {path}, text: {text}}}\n"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Where what is managed lies."""
    folder = tmp_path / "world"
    folder.mkdir()
    return folder


@pytest.fixture
def upstream(git_upstream: MakeUpstream, world: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> GitUpstream:
    """A pushed tree that declares `web`; the test stands in its clone."""
    made = git_upstream("infra")
    tree = {
        "gitops/gitops.yaml": "app: test\n",
        "gitops/note.yaml": KIND,
        "gitops/web.yaml": note(world / "web", "one"),
    }
    made.publish(tree, "one")
    monkeypatch.chdir(made.work)
    return made


def test_a_valid_tree_is_said_to_be_ok(upstream: GitUpstream, capsys: Printed) -> None:
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == "gitops: ok (1 resource, 1 manifest)\n"


@pytest.mark.req("R1.3")
def test_a_folder_without_documents_is_as_invalid_as_a_source_of_it_would_be(tmp_path: Path, capsys: Printed) -> None:
    (tmp_path / "README.md").write_text("nothing here")
    assert main(["validate", str(tmp_path)]) == 2
    assert "no documents" in capsys.readouterr().out


def test_all_problems_are_printed_as_an_editor_takes_them_with_exit_2(
    upstream: GitUpstream, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    (upstream.work / "gitops/web.yaml").write_text("type: resource\nkind: note\nname: web\nspeck: {}\n")
    (upstream.work / "gitops/dns.yaml").write_text("type: resource\nkind: notte\nname: dns\n")
    monkeypatch.chdir(upstream.work / "gitops")
    assert main(["validate"]) == 2
    first, second, summary = capsys.readouterr().out.splitlines()
    assert first.startswith("dns.yaml:2:7: unknown kind 'notte'")
    assert second.startswith("web.yaml:4:1: unknown field 'speck' (did you mean 'spec'?")
    assert summary == ".: 2 problems in 2 files"


def test_validate_names_files_as_seen_from_the_folder_that_was_given(upstream: GitUpstream, capsys: Printed) -> None:
    (upstream.work / "gitops/web.yaml").write_text("type: resourc\n")
    assert main(["validate", str(upstream.work / "gitops")]) == 2
    assert capsys.readouterr().out.startswith(f"{upstream.work}/gitops/web.yaml:1:7: ")


@pytest.mark.parametrize("words", [["validate", "nowhere"], ["tick", "web", "--tree", "nowhere"]])
def test_a_folder_that_is_not_there_is_named(
    words: list[str], state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert "there is no folder 'nowhere'" in capsys.readouterr().err


@pytest.mark.req("R0.26")
def test_one_tick_applies_what_the_remote_has_and_says_so_on_one_line(
    upstream: GitUpstream, world: Path, capsys: Printed
) -> None:
    assert main(["tick", "web"]) == 0
    assert capsys.readouterr().out == f"default/web changed  wrote one  at {upstream.head[:12]}\n"
    assert (world / "web").read_text() == "one"
    assert main(["tick", "default/web"]) == 0
    assert capsys.readouterr().out == f"default/web no_change  as declared  at {upstream.head[:12]}\n"


def test_a_clone_that_is_merely_behind_follows_its_remote_and_is_not_touched(
    upstream: GitUpstream, git_root: Path, world: Path, capsys: Printed
) -> None:
    before = git(upstream.work, "rev-parse", "HEAD")
    git(git_root, "clone", "--quiet", str(upstream.bare), "other")
    other = GitUpstream(bare=upstream.bare, work=git_root / "other")
    head = other.publish({"gitops/web.yaml": note(world / "web", "two")}, "two")
    (upstream.work / "unrelated").write_text("mine")
    assert main(["tick", "web"]) == 0
    assert f"wrote two  at {head[:12]}" in capsys.readouterr().out
    assert git(upstream.work, "rev-parse", "HEAD") == before
    assert git(upstream.work, "status", "--porcelain") == "?? unrelated"


@pytest.mark.parametrize("is_committed", [False, True])
def test_documents_that_are_not_pushed_yet_are_applied_as_they_lie_which_is_said(
    upstream: GitUpstream, world: Path, capsys: Printed, is_committed: bool
) -> None:
    files = {"gitops/web.yaml": note(world / "web", "draft")}
    if is_committed:
        upstream.commit(files, "draft")
    else:
        (upstream.work / "gitops/web.yaml").write_text(files["gitops/web.yaml"])
    assert main(["tick", "web"]) == 0
    captured = capsys.readouterr()
    assert "wrote draft" in captured.out
    assert "has changes that are not pushed" in captured.err
    assert git(upstream.work, "status", "--porcelain") == ("" if is_committed else "M gitops/web.yaml")


def test_a_repository_without_a_remote_is_applied_as_it_lies_which_is_said(
    upstream: GitUpstream, capsys: Printed
) -> None:
    git(upstream.work, "remote", "remove", "origin")
    assert main(["tick", "web"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("default/web changed  wrote one  at ")
    assert "has no remote: applied as it lies there" in captured.err


def test_documents_outside_of_any_repository_can_be_ticked(
    tmp_path: Path, state_dir: Path, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    folder = tmp_path / "plain" / "gitops"
    folder.mkdir(parents=True)
    (folder / "note.yaml").write_text(KIND)
    (folder / "web.yaml").write_text(note(world / "web", "one"))
    monkeypatch.chdir(tmp_path)
    assert main(["tick", "web", "--tree", "plain/gitops"]) == 0
    assert capsys.readouterr().out == "default/web changed  wrote one\n"


def test_a_busy_target_is_skipped_with_exit_0_and_nothing_is_touched(
    upstream: GitUpstream, world: Path, state_dir: Path, capsys: Printed
) -> None:
    with FileLocks(load_settings().layout).hold("note", "web") as held:
        assert held is not None
        assert main(["tick", "web"]) == 0
    assert capsys.readouterr().out == "default/web skipped  previous tick still running\n"
    assert not (world / "web").exists()
    assert not (state_dir / "git").exists()


@pytest.mark.req("R0.26")
def test_an_unknown_target_is_exit_2_with_the_choices(upstream: GitUpstream, world: Path, capsys: Printed) -> None:
    (upstream.work / "gitops/dns.yaml").write_text(note(world / "dns", "x", name="dns"))
    assert main(["tick", "wbe"]) == 2
    captured = capsys.readouterr()
    assert "unknown target 'wbe'" in captured.err
    assert "did you mean 'web'? choose from: dns, web" in captured.err
    assert captured.out == ""


def test_a_target_whose_document_is_invalid_is_refused_with_its_place(upstream: GitUpstream, capsys: Printed) -> None:
    (upstream.work / "gitops/web.yaml").write_text("type: resource\nkind: note\nname: web\nspec: {path: 1}\n")
    assert main(["tick", "web"]) == 2
    assert "gitops/web.yaml:4:" in capsys.readouterr().err


def test_a_document_that_left_the_remote_is_not_applied(
    upstream: GitUpstream, git_root: Path, world: Path, capsys: Printed
) -> None:
    git(git_root, "clone", "--quiet", str(upstream.bare), "other")
    GitUpstream(bare=upstream.bare, work=git_root / "other").publish({"gitops/web.yaml": None}, "drop it")
    assert main(["tick", "web"]) == 1
    assert "unknown target 'web'" in capsys.readouterr().out
    assert not (world / "web").exists()


def test_a_failed_apply_is_exit_1_with_the_reason(upstream: GitUpstream, world: Path, capsys: Printed) -> None:
    upstream.publish({"gitops/web.yaml": note(world / "no" / "web", "one")}, "bad")
    assert main(["tick", "web"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("default/web failed  ")
    assert "No such file or directory" in printed


def test_a_remote_that_is_gone_is_a_failed_run_that_names_it(upstream: GitUpstream, capsys: Printed) -> None:
    upstream.bare.rename(upstream.bare.with_suffix(".gone"))
    assert main(["tick", "web"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("default/web failed  ")
    assert str(upstream.bare) in captured.out


def test_with_v_the_run_log_goes_to_stderr(upstream: GitUpstream, capsys: Printed) -> None:
    assert main(["tick", "web", "-v"]) == 0
    captured = capsys.readouterr()
    assert "== sync" in captured.err
    assert "wrote one" in captured.err
    assert captured.out.count("\n") == 1


def test_the_records_of_ticks_lie_in_the_state_folder(upstream: GitUpstream, state_dir: Path) -> None:
    assert main(["tick", "web"]) == 0
    record = json.loads((state_dir / "targets" / "web.json").read_text())
    assert (record["sha"], record["result"]) == (upstream.head, "changed")


def run_gitops(*words: str, **options: object) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "gitops_reconciler.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]  # passed through


def test_ctrl_c_ends_the_tool_and_exits_130(upstream: GitUpstream, world: Path) -> None:
    slow = KIND.partition("scripts:")[0] + f"scripts: {{apply: 'echo $$ > {world}/pid; sleep 60'}}\n"
    upstream.publish({"gitops/note.yaml": slow}, "slow")
    child = run_gitops("tick", "web", env={**os.environ})
    tool = pid_in(world / "pid", within=30)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    assert eventually(lambda: not lives(tool))
    assert child.communicate()[1] == b""


def test_a_reader_that_goes_away_is_no_error_to_be_told() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gitops_reconciler.cli", "--version"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=30)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 141


HEAVY = ("pydantic", "redis", "yaml", "git", "celery", "fastapi", "urllib.request", "boto3", "docker", "asyncssh")


@pytest.mark.parametrize("words", [["--help"], ["tick", "--help"], ["targets", "--help"], ["demo", "--help"], ["nope"]])
def test_help_loads_none_of_what_commands_need(words: list[str]) -> None:
    code = f"import sys; from gitops_reconciler.cli import main; main({words!r}); print(*sys.modules, sep=chr(10))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert set(HEAVY) & set(done.stdout.splitlines()) == set()
