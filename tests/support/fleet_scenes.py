"""The fleet without Celery, for tests: one source, its upstream, and a runner over real Redis, git and forked runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.runs.launching import FleetRunner
from gitops_reconciler.settings import Settings
from gitops_reconciler.sources import SourceRegistration, register_source
from gitops_reconciler.store.redis import ItemView, RedisStore, RunView
from gitops_reconciler.wiring import Fleet, fleet_runner
from gitops_reconciler.work.base import Cause
from tests.support.git_repos import GitUpstream

SOURCE = "source:default"
KIND = """\
type: manifest
kind: note
schema: {type: object, required: [file, text], properties: {file: {type: string}, text: {type: string}}}
scripts:
  apply: |
    [ "$(cat "$SPEC_FILE" 2>/dev/null)" = "$SPEC_TEXT" ] && exit 0
    [ "$SPEC_TEXT" = broken ] && { echo "no such text: broken" >&2; exit 1; }
    printf %s "$SPEC_TEXT" > "$SPEC_FILE"; echo "wrote $SPEC_TEXT"; exit 3
  destroy: |
    [ -e "$SPEC_FILE" ] || exit 0
    rm "$SPEC_FILE"; exit 3
  outputs: |
    printf '{"text": "%s"}' "$(cat "$SPEC_FILE")"
"""


@dataclass
class Scene:
    """One source, its upstream, and a runner of this host."""

    upstream: GitUpstream
    settings: Settings
    fleet: Fleet
    runner: FleetRunner
    notes: Path
    runs: list[str] = field(default_factory=list)

    @property
    def store(self) -> RedisStore:
        return self.fleet.store

    def note(self, name: str, text: str, *, interval: str = "1h") -> str:
        return (
            f"type: resource\nkind: note\nname: {name}\ninterval: {interval}\n"
            f"spec: {{file: {self.notes / name}, text: {text}}}\n"
        )

    def push(self, files: dict[str, str | None], message: str = "change") -> str:
        return self.upstream.publish(files, message)

    def ask(self, item: str, trigger: Trigger = Trigger.MANUAL) -> None:
        self.fleet.work.request([item], Cause(trigger=trigger, actor="test"))

    def run(self, item: str) -> RunView:
        run = self.runner.run(item)
        assert run is not None, f"nothing to run for {item}"
        self.runs.append(run)
        found = self.store.run(run)
        assert found is not None
        return found

    def drain(self) -> list[RunView]:
        """Run what is asked for, as workers do, until nothing is queued."""
        done = []
        while queued := sorted(self.fleet.store.queued()):
            done += [self.run(item) for item in queued]
        return done

    def sync(self) -> list[RunView]:
        self.ask(SOURCE)
        return self.drain()

    def view(self, name: str) -> ItemView:
        found = self.store.item(f"default/{name}")
        assert found is not None, name
        return found

    def events(self) -> list[tuple[str, str]]:
        seen = self.store.events(limit=1000)
        return [(event.event, event.item) for event in seen if event.event not in {"ended", "changed"}]


@contextmanager
def fleet_scene(settings: Settings, upstream: GitUpstream, notes: Path) -> Iterator[Scene]:
    """A scene whose source declares the target `web`; nothing has run yet."""
    fleet = Fleet(settings)
    notes.mkdir()
    runner = fleet_runner(settings)
    made = Scene(upstream, settings, fleet, runner, notes)
    try:
        made.push(
            {"gitops/gitops.yaml": "app: notes\n", "gitops/kind.yaml": KIND, "gitops/web.yaml": made.note("web", "one")}
        )
        register_source(
            fleet.store, fleet.work, SourceRegistration(name="default", repo=upstream.url, interval=600), settings
        )
        yield made
    finally:
        made.runner.close()
