"""A push asks for targets and their source at once: whatever overtakes what, document and revision belong together."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from gitops_reconciler.clock import Deadline
from gitops_reconciler.git.base import Mirrors, Repository, Revision
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.redis_text import TextRedis
from gitops_reconciler.runs.body import run_order
from gitops_reconciler.runs.launching import FleetRunner, order_of
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.sources import SourceRegistration, register_source
from gitops_reconciler.wiring import Fleet, fleet_runner, run_parts
from gitops_reconciler.work.base import Cause, Claim
from tests.support.git_repos import MakeUpstream

ITEM, SOURCE = "default/web", "source:default"
KIND = """\
type: manifest
kind: note
schema: {type: object, required: [file, text], properties: {file: {type: string}, text: {type: string}}}
scripts: {apply: 'printf %s "$SPEC_TEXT" > "$SPEC_FILE"; echo "wrote $SPEC_TEXT"; exit 3'}
"""


class Meanwhile:
    """Mirrors that let something happen between the fetch of a revision and its use."""

    def __init__(self, mirrors: Mirrors, act: Callable[[], object]) -> None:
        self._mirrors = mirrors
        self._act = act

    def fetch(self, repository: Repository, *, asked: tuple[str, int] | None, deadline: Deadline) -> Revision:
        revision = self._mirrors.fetch(repository, asked=asked, deadline=deadline)
        self._act()
        return revision

    def __getattr__(self, name: str) -> object:
        return getattr(self._mirrors, name)


@pytest.fixture
def settings(
    redis_url: str, redis_client: TextRedis, state_dir: Path, git_root: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Settings of an empty store and an empty state folder, which forked runs see too."""
    monkeypatch.setenv("GITOPS_REDIS_URL", redis_url)
    monkeypatch.setenv("GITOPS_GIT_ALLOW_LOCAL", str(git_root))
    return load_settings()


@pytest.fixture
def runner(settings: Settings) -> Iterator[FleetRunner]:
    made = fleet_runner(settings)
    yield made
    made.close()


def test_a_run_that_its_source_overtakes_applies_the_new_document_and_says_so(
    settings: Settings, runner: FleetRunner, git_upstream: MakeUpstream, tmp_path: Path
) -> None:
    fleet, upstream, note = Fleet(settings), git_upstream("infra"), tmp_path / "note"

    def declare(text: str) -> str:
        web = f"type: resource\nkind: note\nname: web\ninterval: off\nspec: {{file: {note}, text: {text}}}\n"
        return upstream.publish(
            {"gitops/gitops.yaml": "app: test\n", "gitops/kind.yaml": KIND, "gitops/web.yaml": web}, text
        )

    def sync() -> None:
        fleet.work.request([SOURCE], Cause(trigger=Trigger.WEBHOOK))
        assert runner.run(SOURCE) is not None

    declare("one")
    register_source(fleet.store, fleet.work, SourceRegistration(name="default", repo=upstream.url), settings)
    sync()
    assert runner.run(ITEM) is not None
    sha = declare("two")
    fleet.work.request([ITEM], Cause(trigger=Trigger.WEBHOOK))
    claim = fleet.work.claim(ITEM, "a" * 32, ttl_ms=60_000, holder="test")
    assert isinstance(claim, Claim)
    parts = run_parts(settings, os.environ)
    overtaken = replace(parts, mirrors=cast("Mirrors", Meanwhile(parts.mirrors, sync)))
    with (tmp_path / "lock").open("w") as lock:
        said = run_order(order_of(claim, settings, settings.layout), lock.fileno(), overtaken)
    view = fleet.store.item(ITEM)
    assert view is not None
    assert (said["message"], said["revision"]) == ("wrote two", sha)
    assert said["document_hash"] == view.fields["document_hash"]
    assert note.read_text() == "two"
