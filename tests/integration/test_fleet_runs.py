"""The fleet without Celery: sources and targets run by the real runner, over real Redis, git and forked runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.sources import remove_source
from gitops_reconciler.wiring import fleet_runner
from gitops_reconciler.work.base import Cause, Claim, Mark
from tests.support.fleet_scenes import KIND, SOURCE, Scene, fleet_scene
from tests.support.git_repos import MakeUpstream


@pytest.fixture
def fleet_settings(
    redis_url: str, redis_client: TextRedis, state_dir: Path, git_root: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Settings of an empty store and an empty state folder."""
    monkeypatch.setenv("GITOPS_REDIS_URL", redis_url)
    monkeypatch.setenv("GITOPS_GIT_ALLOW_LOCAL", str(git_root))
    return load_settings()


@pytest.fixture
def scene(fleet_settings: Settings, git_upstream: MakeUpstream, tmp_path: Path) -> Iterator[Scene]:
    with fleet_scene(fleet_settings, git_upstream("infra"), tmp_path / "notes") as made:
        yield made


@pytest.mark.req("R1.45", "R1.46", "R1.28", "R0.61")
def test_a_push_converges_and_records_the_full_revision(scene: Scene) -> None:
    scene.drain()
    sha = scene.push({"gitops/web.yaml": scene.note("web", "two")})
    scene.sync()
    assert (scene.notes / "web").read_text() == "two"
    view = scene.view("web")
    assert (view.status, view.applied_revision, view.fields["subject"]) == ("ready", sha, "change")
    run = scene.store.run(view.last_run)
    assert run is not None
    assert "wrote two" in run.fields["log"]
    assert run.fields["message"] == "wrote two"
    assert view.fields["outputs_digest"]


@pytest.mark.req("R2.2", "R4.14")
def test_a_second_sync_of_the_same_tree_asks_for_nothing(scene: Scene) -> None:
    scene.drain()
    (only,) = scene.sync()
    assert (only.item, only.state) == (SOURCE, "no_change")
    assert "1 unchanged" in only.fields["message"]


def test_damage_is_healed_by_the_next_tick_with_its_reason(scene: Scene) -> None:
    scene.drain()
    (scene.notes / "web").write_text("vandal")
    scene.ask("default/web", Trigger.SCHEDULE)
    (run,) = scene.drain()
    assert run.state == "changed"
    assert (scene.notes / "web").read_text() == "one"


def test_an_old_document_is_never_applied_at_a_new_revision_of_its_own_tree(scene: Scene) -> None:
    scene.drain()
    scene.push({"gitops/web.yaml": scene.note("web", "two")})
    scene.ask("default/web", Trigger.WEBHOOK)
    first = scene.run("default/web")
    assert (first.state, first.fields["reason"]) == ("skipped", "NotSynced")
    assert (scene.notes / "web").read_text() == "one"
    scene.drain()
    assert (scene.notes / "web").read_text() == "two"
    last = scene.store.run(scene.view("web").last_run)
    assert last is not None
    assert json.loads(last.fields["causes"])[0]["trigger"] == "webhook"


def test_a_commit_beside_the_documents_needs_no_sync_first(scene: Scene) -> None:
    scene.drain()
    sha = scene.push({"README.md": "hello"})
    scene.ask("default/web", Trigger.WEBHOOK)
    (run,) = scene.drain()
    assert (run.state, scene.view("web").applied_revision) == ("no_change", sha)


@pytest.mark.req("R4.17", "R4.18", "R4.23", "R1.34")
def test_a_removed_document_makes_its_target_stale_and_leaves_the_thing_alone(scene: Scene) -> None:
    scene.push({"gitops/api.yaml": scene.note("api", "hi")})
    scene.drain()
    scene.push({"gitops/api.yaml": None})
    scene.sync()
    assert scene.view("api").status == "stale"
    assert "its document gitops/api.yaml is gone at" in scene.view("api").message
    assert (scene.notes / "api").read_text() == "hi"
    assert ("stale", "default/api") in scene.events()
    assert scene.view("web").status == "ready"


@pytest.mark.req("R4.19")
def test_a_restored_document_makes_its_target_active_again(scene: Scene) -> None:
    scene.push({"gitops/api.yaml": scene.note("api", "hi")})
    scene.drain()
    scene.push({"gitops/api.yaml": None})
    scene.sync()
    scene.push({"gitops/api.yaml": scene.note("api", "hi")})
    scene.sync()
    assert scene.view("api").status == "ready"


@pytest.mark.req("R4.18")
def test_an_emptied_tree_makes_nothing_stale_and_is_said_loudly(scene: Scene) -> None:
    scene.drain()
    scene.push({"gitops/web.yaml": None, "gitops/kind.yaml": None, "gitops/gitops.yaml": None, "README.md": "hello"})
    scene.sync()
    assert scene.view("web").status == "ready"
    source = scene.store.item(SOURCE)
    assert source is not None
    assert (source.status, source.reason) == ("failed", "SourceEmpty")
    assert ("failed", SOURCE) in scene.events()


def test_an_invalid_document_freezes_its_own_scope_and_no_other(scene: Scene) -> None:
    scene.push(
        {
            "gitops/b/gitops.yaml": "app: b\n",
            "gitops/b/api.yaml": scene.note("api", "hi"),
            "gitops/b/db.yaml": scene.note("db", "hi"),
        }
    )
    scene.drain()
    scene.push(
        {
            "gitops/b/api.yaml": "type: resource\nkind: note\nname: api\nspec: {file: 7}\n",
            "gitops/b/db.yaml": None,
            "gitops/web.yaml": scene.note("web", "two"),
        }
    )
    scene.sync()
    source = scene.store.item(SOURCE)
    assert source is not None
    assert source.status == "failed"
    assert "gitops/b/api.yaml:4" in source.message
    assert scene.view("db").status == "ready"
    assert (scene.notes / "web").read_text() == "two"


@pytest.mark.req("R0.14", "RM.7", "R2.36")
def test_a_failing_target_alerts_once_recovers_once_and_disturbs_nobody(scene: Scene) -> None:
    scene.push({"gitops/api.yaml": scene.note("api", "broken")})
    scene.drain()
    for _ in range(3):
        scene.ask("default/api")
        scene.drain()
    assert scene.view("api").status == "failed"
    assert "no such text: broken" in scene.view("api").message
    assert scene.view("web").status == "ready"
    scene.push({"gitops/api.yaml": scene.note("api", "fine")})
    scene.sync()
    about_api = [event for event, item in scene.events() if item == "default/api"]
    assert about_api == ["failed", "recovered"]


@pytest.mark.req("R0.15", "R0.16")
def test_a_remote_that_is_down_is_a_failed_run_that_names_it(scene: Scene) -> None:
    scene.drain()
    away = scene.upstream.bare.with_name("away.git")
    scene.upstream.bare.rename(away)
    scene.ask("default/web")
    (run,) = scene.drain()
    assert run.state == "failed"
    assert str(scene.upstream.bare.name) in run.fields["message"]
    assert scene.view("web").applied_revision
    away.rename(scene.upstream.bare)
    scene.ask("default/web")
    scene.drain()
    about_web = [event for event, item in scene.events() if item == "default/web"]
    assert about_web == ["failed", "recovered"]


def test_a_spec_that_stalls_is_not_tried_again_by_the_schedule_at_the_same_revision(scene: Scene) -> None:
    document = (
        f"type: resource\nkind: note\nname: api\npath: nowhere\nspec: {{file: {scene.notes / 'api'}, text: hi}}\n"
    )
    scene.push({"gitops/api.yaml": document})
    scene.drain()
    assert scene.view("api").status == "stalled"
    scene.ask("default/api", Trigger.SCHEDULE)
    (run,) = scene.drain()
    assert (run.state, run.fields["reason"]) == ("skipped", "Stalled")
    assert scene.view("api").status == "stalled"
    scene.push({"nowhere/keep": ""})
    scene.ask("default/api", Trigger.SCHEDULE)
    scene.drain()
    assert scene.view("api").status == "ready"


def test_one_push_to_a_repository_of_many_targets_costs_one_fetch(scene: Scene) -> None:
    names = [f"t{number}" for number in range(6)]
    scene.push({f"gitops/{name}.yaml": scene.note(name, "x") for name in names})
    scene.drain()
    sha = scene.push({"README.md": "hello"})
    scene.fleet.work.request([f"default/{name}" for name in names], Cause(trigger=Trigger.WEBHOOK))
    runs = [scene.run(f"default/{name}") for name in names]
    assert {scene.view(name).applied_revision for name in names} == {sha}
    assert all(run.state == "no_change" for run in runs)


def test_a_wish_to_be_absent_destroys_what_was_applied_last(scene: Scene) -> None:
    scene.drain()
    scene.fleet.work.mark("default/web", Mark.ABSENT, actor="ann")
    (run,) = scene.drain()
    assert (run.state, run.fields["reason"]) == ("changed", "Destroyed")
    assert not (scene.notes / "web").exists()
    assert scene.view("web").status == "destroyed"
    assert scene.fleet.client.zscore(keys.DUE, "default/web") is None


def test_a_suspended_document_is_not_run_until_it_says_otherwise(scene: Scene) -> None:
    scene.push({"gitops/web.yaml": scene.note("web", "two") + "suspend: true\n"})
    scene.sync()
    assert scene.view("web").status == "suspended"
    assert not (scene.notes / "web").exists() or (scene.notes / "web").read_text() != "two"
    scene.push({"gitops/web.yaml": scene.note("web", "two")})
    scene.sync()
    assert (scene.notes / "web").read_text() == "two"


def test_a_manifest_that_cannot_be_read_leaves_its_targets_their_kind(scene: Scene) -> None:
    scene.drain()
    scene.push({"gitops/kind.yaml": "type: manifest\nkind: [\n"})
    scene.sync()
    scene.ask("default/web")
    scene.drain()
    assert scene.view("web").status == "ready"


@pytest.mark.req("R0.56", "R0.28", "R0.68")
def test_a_missing_tool_fails_its_own_target_by_name_and_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "sh", "bash", "cat", "printf", "rm", "env"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    document = "type: resource\nkind: terraform\nname: net\npath: stack\ninterval: 1h\n"
    scene.push({"stack/main.tf": 'resource "terraform_data" "x" {}\n', "gitops/net.yaml": document})
    scene.runner.close()
    monkeypatch.setenv("PATH", str(tools))
    scene.runner = fleet_runner(scene.settings)
    scene.drain()
    net = scene.view("net")
    assert (net.status, net.reason) == ("failed", "ToolMissing")
    assert "terraform" in net.message
    assert scene.view("web").status == "ready"
    assert [event for event, item in scene.events() if item == "default/net"] == ["failed"]


def test_a_source_that_cannot_be_synced_does_not_stop_the_healing_of_its_targets(scene: Scene) -> None:
    scene.drain()
    scene.push({"gitops/web.yaml": None, "gitops/kind.yaml": None, "gitops/gitops.yaml": None, "README.md": "hello"})
    scene.sync()
    (scene.notes / "web").write_text("vandal")
    scene.ask("default/web", Trigger.SCHEDULE)
    (run,) = scene.drain()
    assert run.state == "changed"
    assert (scene.notes / "web").read_text() == "one"


def test_the_targets_of_a_removed_source_stay_and_are_kept_converged(scene: Scene) -> None:
    scene.drain()
    assert remove_source(scene.store, scene.fleet.work, "default")
    (scene.notes / "web").write_text("vandal")
    scene.ask("default/web")
    scene.drain()
    assert (scene.notes / "web").read_text() == "one"


def test_a_destroy_uses_what_was_applied_last_also_when_it_left_the_tree(scene: Scene) -> None:
    scene.push({"gitops/b/gitops.yaml": "app: b\n", "gitops/b/keep.yaml": KIND.replace("kind: note", "kind: other")})
    scene.drain()
    scene.push({"gitops/web.yaml": None, "gitops/kind.yaml": None})
    scene.sync()
    assert scene.view("web").status == "stale"
    scene.fleet.work.mark("default/web", Mark.ABSENT, actor="ann")
    (run,) = scene.drain()
    assert (run.state, run.fields["reason"]) == ("changed", "Destroyed")
    assert not (scene.notes / "web").exists()


def test_what_was_never_applied_is_destroyed_by_doing_nothing(scene: Scene) -> None:
    scene.push({"gitops/api.yaml": scene.note("api", "broken")})
    scene.drain()
    scene.fleet.work.mark("default/api", Mark.ABSENT, actor="ann")
    (run,) = scene.drain()
    assert (run.state, run.fields["reason"]) == ("no_change", "Destroyed")
    assert scene.view("api").status == "destroyed"


def test_a_target_that_stalled_by_losses_wakes_up_with_a_new_revision(scene: Scene) -> None:
    scene.drain()
    scene.ask("default/web", Trigger.SCHEDULE)
    for _ in range(3):
        claim = scene.fleet.work.claim("default/web", uuid4().hex, ttl_ms=60_000, holder="test")
        assert isinstance(claim, Claim)
        scene.fleet.client.delete(keys.lease("default/web"))
        scene.fleet.client.zadd(keys.LEASES, {"default/web": 1})
        scene.fleet.work.sweep(limit=10, rewake_after_ms=10_000, ttl_ms=60_000)
        if scene.view("web").status != "stalled":  # what was lost twice is asked for after a wait
            scene.fleet.client.zadd(keys.DUE, {"default/web": 1}, xx=True)
            scene.fleet.work.sweep(limit=10, rewake_after_ms=10_000, ttl_ms=60_000)
    assert scene.view("web").status == "stalled"
    sha = scene.push({"README.md": "hello"})
    scene.sync()
    view = scene.view("web")
    assert (view.status, view.applied_revision) == ("ready", sha)


def test_a_tree_that_reaches_out_of_itself_stalls_at_its_revision(scene: Scene) -> None:
    scene.drain()
    (scene.upstream.work / "escape").symlink_to("/etc")
    sha = scene.push({"README.md": "hello"})
    scene.sync()
    assert (scene.view("web").status, scene.view("web").revision) == ("stalled", sha)
    scene.ask("default/web", Trigger.SCHEDULE)
    (run,) = scene.drain()
    assert run.fields["reason"] == "Stalled"


def test_a_target_of_a_frozen_scope_stays_at_the_revision_of_its_documents(scene: Scene) -> None:
    scene.drain()
    before = scene.view("web").applied_revision
    scene.push({"gitops/web.yaml": scene.note("web", "two"), "gitops/bad.yaml": "type: resource\nkind: nope\n"})
    scene.sync()
    scene.ask("default/web", Trigger.WEBHOOK)
    scene.drain()
    view = scene.view("web")
    assert (view.status, view.applied_revision) == ("ready", before)
    assert (scene.notes / "web").read_text() == "one"
    (scene.notes / "web").write_text("vandal")
    scene.ask("default/web", Trigger.SCHEDULE)
    scene.drain()
    assert (scene.notes / "web").read_text() == "one"
    sha = scene.push({"gitops/bad.yaml": None})
    scene.sync()
    assert (scene.notes / "web").read_text() == "two"
    assert scene.view("web").applied_revision == sha


def test_a_skipped_run_says_what_it_waits_for_and_leaves_the_rest_alone(scene: Scene) -> None:
    scene.drain()
    message = scene.view("web").message
    scene.push({"gitops/web.yaml": scene.note("web", "two")})
    scene.ask("default/web", Trigger.SCHEDULE)
    scene.run("default/web")
    view = scene.view("web")
    assert (view.status, view.message) == ("ready", message)
    assert "asked to sync first" in view.fields["waiting_for"]


def test_a_run_that_is_cut_off_keeps_the_revision_that_it_was_at(scene: Scene) -> None:
    slow = KIND.replace("kind: note", "kind: slow").replace("  apply: |\n", "  apply: |\n    sleep 60\n")
    document = scene.note("api", "hi").replace("kind: note", "kind: slow") + "timeout: 2s\n"
    sha = scene.push({"gitops/slow.yaml": slow, "gitops/api.yaml": document})
    scene.drain()
    run = scene.store.run(scene.view("api").last_run)
    assert run is not None
    assert (run.fields["reason"], run.fields["revision"]) == ("DeadlineExceeded", sha)


def test_secrets_of_the_worker_are_masked_whether_a_run_references_them_or_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITOPS_SECRET_OTHER", "canary-77aa12")
    scene.runner.close()
    scene.runner = fleet_runner(scene.settings)
    nosy = KIND.replace("kind: note", "kind: nosy").replace(
        "  apply: |\n", "  apply: |\n    tr '\\0' '\\n' < /proc/$PPID/environ\n"
    )
    scene.push(
        {"gitops/nosy.yaml": nosy, "gitops/api.yaml": scene.note("api", "hi").replace("kind: note", "kind: nosy")}
    )
    scene.drain()
    run = scene.store.run(scene.view("api").last_run)
    assert run is not None
    assert run.state == "changed"
    assert "canary-77aa12" not in json.dumps(run.fields)
    assert "GITOPS_SECRET_OTHER=***" in run.fields["log"]
