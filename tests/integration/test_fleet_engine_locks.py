"""Runs of the fleet and of `gitops tick`, killed or interrupted while Terraform holds a lock that outlives them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_reconciler.cli import main
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.supervise.leftovers import Record
from gitops_reconciler.supervise.procfs import Identity
from gitops_reconciler.work.base import Mark
from tests.support.fleet_scenes import SOURCE, Scene, fleet_scene
from tests.support.git_repos import MakeUpstream
from tests.support.killing import kill_all_below
from tests.support.processes import eventually, lives, pid_in
from tests.support.state_server import HttpState, StateServer, running_state_server

ITEM = "default/net"
TARGET = "type: resource\nkind: terraform\nname: net\npath: stacks/net\nspec: {lock_timeout: 1s}\n"
LONG_AGO = "2026-01-02T03:04:05Z"
SLOW = """
resource "terraform_data" "slow" {{
  provisioner "local-exec" {{
    command = "echo $$ > {folder}/pid; [ -e {folder}/go ] || exec sleep 600"
  }}
}}
"""


@pytest.fixture
def server(terraform: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateServer]:
    settings = tmp_path / "terraformrc"
    settings.write_text("")
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(settings))
    monkeypatch.setenv("PATH", f"{terraform.parent}:/usr/local/bin:/usr/bin:/bin")
    with running_state_server(HttpState()) as running:
        yield running


@pytest.fixture
def files(server: StateServer, tmp_path: Path) -> dict[str, str | None]:
    return {
        "gitops/net.yaml": TARGET,
        "stacks/net/main.tf": server.configuration() + SLOW.format(folder=tmp_path),
    }


@pytest.fixture
def settings(
    redis_url: str, redis_client: TextRedis, state_dir: Path, git_root: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    monkeypatch.setenv("GITOPS_REDIS_URL", redis_url)
    monkeypatch.setenv("GITOPS_GIT_ALLOW_LOCAL", str(git_root))
    for name, value in (("TTL", "20s"), ("RENEWAL", "1s"), ("GRACE", "8s")):
        monkeypatch.setenv(f"GITOPS_LEASE_{name}", value)
    return load_settings()


@pytest.fixture
def scene(
    settings: Settings, files: dict[str, str | None], git_upstream: MakeUpstream, tmp_path: Path
) -> Iterator[Scene]:
    with fleet_scene(settings, git_upstream("infra"), tmp_path / "notes") as made:
        made.push({**files, "gitops/web.yaml": None})
        made.ask(SOURCE)
        made.run(SOURCE)
        yield made
        end_what_sleeps(tmp_path)


def end_what_sleeps(folder: Path) -> None:
    """End the slow part of an apply that a failed test left, so that its run comes to an end as well."""
    pid = folder / "pid"
    if pid.exists() and lives(number := pid_in(pid)):
        os.kill(number, signal.SIGKILL)


@pytest.fixture
def clone(
    files: dict[str, str | None], git_upstream: MakeUpstream, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A pushed tree that declares the target; the test stands in its clone."""
    upstream = git_upstream("infra")
    upstream.publish(files, "one")
    monkeypatch.chdir(upstream.work)
    return upstream.work


def in_its_apply(scene: Scene, folder: Path) -> threading.Thread:
    """A run of the target in a thread, as in a worker, once its apply is under way."""
    thread = threading.Thread(target=scene.runner.run, args=(ITEM,), daemon=True)
    thread.start()
    assert in_the_middle(folder, scene.settings.layout.engine_locks)
    return thread


def in_the_middle(folder: Path, notes: Path) -> bool:
    """Whether an apply comes to its slow part, and the run has noted that the engine holds the lock."""

    def is_there() -> bool:
        held = [json.loads(path.read_text())["held_at"] for path in notes.glob("*/*.json")]
        return (folder / "pid").exists() and any(held)

    return eventually(is_there, within=60)


@pytest.mark.req("R0.57")
def test_a_run_that_was_killed_with_its_keepers_leaves_a_lock_that_the_next_run_breaks(
    scene: Scene, server: StateServer, tmp_path: Path
) -> None:
    worker = in_its_apply(scene, tmp_path)
    record = Record.parse(scene.settings.layout.leftover("terraform", ITEM).read_bytes())
    assert record is not None
    kill_all_below(record.guard)
    worker.join(60)
    left = (server.lock or {})["ID"]
    (tmp_path / "go").touch()
    scene.ask(ITEM)
    run = scene.run(ITEM)
    assert run.state == "changed", run.fields["log"]
    assert f"broke the lock {left} that run {record.run} left on this state" in run.fields["message"]
    assert "broke the lock" in run.fields["log"]
    assert server.lock is None
    assert scene.view("net").status == "ready"


def test_a_run_that_loses_its_lease_gives_the_engines_lock_back(
    scene: Scene, server: StateServer, tmp_path: Path
) -> None:
    worker = in_its_apply(scene, tmp_path)
    scene.fleet.work.mark(ITEM, Mark.UNLOCK, actor="test")
    worker.join(60)
    assert not worker.is_alive()
    assert server.lock is None


def test_a_lock_of_somebody_who_left_is_alarmed_of_and_asked_again_until_a_person_frees_it(
    scene: Scene, server: StateServer, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    server.set_lock({"ID": "1-2-3", "Who": "ann@laptop", "Operation": "OperationTypeApply", "Created": LONG_AGO})
    run = scene.run(ITEM)
    assert (run.state, run.fields["reason"]) == ("unreachable", "EngineLocked")
    assert scene.view("net").status == "unreachable"
    assert ("unreachable", ITEM) in scene.events()
    assert f"terraform -chdir={scene.settings.layout.tree(ITEM)}/stacks/net force-unlock 1-2-3" in run.fields["message"]
    assert server.lock is not None
    server.set_lock(None)
    scene.ask(ITEM)
    assert scene.run(ITEM).state == "changed"
    assert ("recovered", ITEM) in scene.events()


def test_a_killed_local_tick_leaves_a_lock_that_the_next_one_breaks(
    clone: Path, server: StateServer, state_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, quiet = [sys.executable, "-m", "gitops_reconciler.cli", "tick", "net"], subprocess.DEVNULL
    ticking = subprocess.Popen(argv, stdout=quiet, stderr=quiet, start_new_session=True, cwd=clone)
    assert in_the_middle(tmp_path, state_dir / "engine")
    kill_all_below(Identity.of(ticking.pid))
    ticking.wait(30)
    assert server.lock is not None
    left = server.lock["ID"]
    (tmp_path / "go").touch()
    assert main(["tick", "net"]) == 0
    assert f"broke the lock {left} that process {ticking.pid} left on this state" in capsys.readouterr().out
