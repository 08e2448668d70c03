"""Nobody tears down or applies what belongs to another target: resource keys, with real Terraform states."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.runs.launching import FleetRunner
from gitops_reconciler.settings import load_settings
from gitops_reconciler.sources import SourceRegistration, register_source
from gitops_reconciler.store.redis import ItemView, RunView
from gitops_reconciler.wiring import Fleet, fleet_runner
from gitops_reconciler.work.base import Cause, Mark
from tests.support.git_repos import GitUpstream, MakeUpstream

MODULE = 'terraform {\n  backend "local" {}\n}\nresource "terraform_data" "a" {\n  input = "1"\n}\n'


@dataclass
class Scene:
    """One source of Terraform targets, and a runner of this host."""

    upstream: GitUpstream
    fleet: Fleet
    runner: FleetRunner
    state: Path

    def document(self, name: str, state: Path | None = None) -> str:
        path = state or self.state
        return (
            f"type: resource\nkind: terraform\nname: {name}\npath: stack\nspec: {{backend_config: {{path: {path}}}}}\n"
        )

    def push(self, files: dict[str, str | None]) -> list[RunView]:
        self.upstream.publish(files, "change")
        return self.ask("source:default")

    def ask(self, item: str) -> list[RunView]:
        self.fleet.work.request([item], Cause(trigger=Trigger.MANUAL, actor="ann"))
        return self.drain()

    def drain(self) -> list[RunView]:
        done = []
        while queued := sorted(self.fleet.store.queued()):
            for item in queued:
                run = self.runner.run(item)
                found = None if run is None else self.fleet.store.run(run)
                assert found is not None
                done.append(found)
        return done

    def destroy(self, name: str) -> RunView:
        assert self.fleet.work.mark(f"default/{name}", Mark.ABSENT, actor="ann")
        (run,) = self.drain()
        return run

    def view(self, name: str) -> ItemView:
        found = self.fleet.store.item(f"default/{name}")
        assert found is not None, name
        return found

    def resources(self) -> list[str]:
        return [str(one["name"]) for one in json.loads(self.state.read_text())["resources"]]

    def owners(self) -> dict[str, str]:
        return as_text(self.fleet.client).hgetall(keys.OWNERS)


@pytest.fixture
def scene(  # noqa: PLR0917  # what it is made of
    redis_url: str,
    redis_client: TextRedis,
    state_dir: Path,
    git_root: Path,
    git_upstream: MakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    terraform: Path,
) -> Iterator[Scene]:
    monkeypatch.setenv("GITOPS_REDIS_URL", redis_url)
    monkeypatch.setenv("GITOPS_GIT_ALLOW_LOCAL", str(git_root))
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", "/dev/null")
    settings = load_settings()
    fleet, runner = Fleet(settings), fleet_runner(settings)
    made = Scene(git_upstream("infra"), fleet, runner, tmp_path / "shared.tfstate")
    try:
        made.upstream.publish(
            {
                "gitops/gitops.yaml": "app: net\n",
                "stack/main.tf": MODULE,
                "gitops/one.yaml": made.document("one"),
            },
            "begin",
        )
        registration = SourceRegistration(name="default", repo=made.upstream.url, interval=600)
        register_source(fleet.store, fleet.work, registration, settings)
        made.drain()
        assert made.view("one").status == "ready", made.view("one").message
        yield made
    finally:
        runner.close()


def test_a_second_target_on_one_state_is_refused_and_the_first_is_named(scene: Scene) -> None:
    scene.push({"gitops/two.yaml": scene.document("two")})
    two = scene.view("two")
    assert (two.status, two.reason) == ("stalled", "OwnedElsewhere")
    assert "belongs to target 'default/one', nothing was applied" in two.message
    assert str(scene.state) in two.message
    assert scene.owners().popitem()[1] == "default/one"
    scene.push({"gitops/three.yaml": scene.document("three", scene.state.with_name("own.tfstate"))})
    assert scene.view("three").status == "ready"
    assert sorted(scene.owners().values()) == ["default/one", "default/three"]


def test_a_target_that_got_another_name_takes_over_what_it_owned(scene: Scene) -> None:
    runs = scene.push({"gitops/one.yaml": None, "gitops/new.yaml": scene.document("new")})
    assert [(run.item, run.state) for run in runs] == [("source:default", "changed"), ("default/new", "no_change")]
    assert scene.view("one").status == "stale"
    assert list(scene.owners().values()) == ["default/new"]
    adopted = [event for event in scene.fleet.store.events(limit=1000) if event.event == "adopted"]
    assert [(event.item, event.fields["from"]) for event in adopted] == [("default/new", "default/one")]


@pytest.mark.req("R0.35")
def test_a_rename_never_tears_down_its_own_world(scene: Scene) -> None:
    scene.push({"gitops/one.yaml": None, "gitops/new.yaml": scene.document("new")})
    run = scene.destroy("one")
    assert (run.state, run.fields["reason"]) == ("failed", "OwnedElsewhere")
    assert "belongs to target 'default/new', nothing was destroyed" in run.fields["message"]
    assert scene.resources() == ["a"]
    assert scene.view("one").status == "stalled"
    assert scene.destroy("new").state == "changed"
    assert scene.resources() == []
    assert scene.owners() == {}


def test_what_is_wished_absent_is_not_taken_over_before_it_is_gone(scene: Scene) -> None:
    scene.fleet.work.mark("default/one", Mark.ABSENT, actor="ann")
    scene.fleet.work.mark("default/one", Mark.SUSPEND, actor="ann")
    runs = scene.push({"gitops/one.yaml": None, "gitops/new.yaml": scene.document("new")})
    waiting = next(run for run in runs if run.item == "default/new")
    assert (waiting.state, waiting.fields["reason"]) == ("skipped", "OwnedElsewhere")
    scene.fleet.work.mark("default/one", Mark.RESUME, actor="ann")
    scene.drain()
    assert scene.owners() == {}
    assert [run.state for run in scene.ask("default/new")] == ["changed"]
    assert list(scene.owners().values()) == ["default/new"]


def test_a_state_that_was_moved_is_free_once_the_move_was_applied(scene: Scene) -> None:
    moved = scene.state.with_name("moved.tfstate")
    scene.push({"gitops/one.yaml": scene.document("one", moved)})
    assert scene.view("one").status == "failed"  # the engine does not move a state behind anybody's back
    assert [key.partition(":")[2] for key in scene.owners()] == [str(scene.state)]
    for lost in scene.fleet.settings.layout.tree("default/one").rglob("gitops-init"):
        lost.unlink()
    for left in scene.fleet.settings.layout.tree("default/one").rglob(".terraform/terraform.tfstate"):
        left.unlink()
    scene.ask("default/one")
    assert scene.view("one").status == "ready"
    assert [key.partition(":")[2] for key in scene.owners()] == [str(moved)]
