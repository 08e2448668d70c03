"""The repositories of a campaign: one with the documents of all targets, and one for each ten of them to follow."""

from __future__ import annotations

import random
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.plan import Plan
from tests.support.git_repos import GitUpstream

THING = Path(__file__).with_name("thing.py")
_TARGETS_A_REPOSITORY = 10
KIND = """\
type: manifest
kind: thing
schema:
  type: object
  required: [seconds, shape, mark]
  properties: {seconds: {type: number}, shape: {type: string}, mark: {type: integer}}
scripts:
  apply: |
    thing=("$CHAOS_PYTHON" -I -S "$CHAOS_THING" "$CHAOS_FOLDER" "$GITOPS_TARGET" "$GITOPS_RUN" "$SPEC_SECONDS"
      "$(cat version)/$SPEC_MARK")
    case $SPEC_SHAPE in
      child) said=$( ( "${thing[@]}" & wait ) & wait ) ;;
      session) said=$( setsid "${thing[@]}" & wait ) ;;
      orphan) said=$( ( setsid "${thing[@]}" & ) ) ;;
    esac
    [ "$said" = unchanged ] && exit 0
    [ "$said" = changed ] && exit 3
    echo "the thing said '$said'"; exit 1
"""
SHAPES = ("child", "session", "orphan")
"""How the process that does the work hangs below the run: in its group, in a session of its own, or of no parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target of the campaign."""

    name: str
    repository: int
    seconds: float
    shape: str
    interval: str

    @property
    def item(self) -> str:
        """Its name in the fleet."""
        return f"default/{self.name}"

    def document(self, url: str, mark: int) -> str:
        """What declares it."""
        return (
            f"type: resource\nkind: thing\nname: {self.name}\nrepo: {url}\nbranch: main\ninterval: '{self.interval}'\n"
            f"spec: {{seconds: {self.seconds}, shape: {self.shape}, mark: {mark}}}\n"
        )


def targets_of(plan: Plan, rng: random.Random) -> list[Target]:
    """Most run for a moment, some for up to 3 s, and a few for longer than their lease."""
    made = []
    for number in range(plan.targets):
        kind = number % 40
        seconds = plan.ttl * 1.3 if kind == 0 else rng.uniform(0.5, 3.0) if kind % 4 == 1 else rng.uniform(0.05, 0.5)
        made.append(
            Target(
                name=f"t{number:03}",
                repository=number // _TARGETS_A_REPOSITORY,
                seconds=round(seconds, 2),
                shape=SHAPES[number % len(SHAPES)],
                interval=f"{plan.interval:g}s" if number % 2 else "off",
            )
        )
    return made


@dataclass(slots=True)
class World:
    """The repositories, and what their tips say."""

    folder: Path
    targets: list[Target]
    documents: GitUpstream
    stacks: list[GitUpstream]
    versions: dict[int, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def create(cls, folder: Path, plan: Plan) -> World:
        """Make all of them, with a first commit each."""
        folder.mkdir()
        targets = targets_of(plan, random.Random(plan.seed))
        count = targets[-1].repository + 1
        stacks = [GitUpstream.create(folder, f"stack{number:02}") for number in range(count)]
        made = cls(folder, targets, GitUpstream.create(folder, "documents"), stacks)
        for number, stack in enumerate(stacks):
            stack.publish({"version": "0\n"}, "first")
            made.versions[number] = 0
        made.marks = {target.name: 0 for target in targets}
        files = {f"gitops/{target.name}.yaml": made.document(target) for target in targets}
        made.documents.publish({"gitops/gitops.yaml": "app: chaos\n", "gitops/kind.yaml": KIND, **files}, "first")
        return made

    def document(self, target: Target) -> str:
        """What declares a target now."""
        return target.document(self.stacks[target.repository].url, self.marks[target.name])

    def of_repository(self, number: int) -> list[Target]:
        """The targets that follow a stack's repository."""
        return [target for target in self.targets if target.repository == number]

    def push_stack(self, number: int) -> list[Target]:
        """Push a new version; answers the targets that should have it."""
        with self._lock:
            self.versions[number] += 1
            self.stacks[number].publish({"version": f"{self.versions[number]}\n"}, f"version {self.versions[number]}")
            return self.of_repository(number)

    def push_documents(self, targets: list[Target]) -> None:
        """Push a new mark for some targets."""
        with self._lock:
            for target in targets:
                self.marks[target.name] += 1
            files = {f"gitops/{target.name}.yaml": self.document(target) for target in targets}
            self.documents.publish(files, "new marks")

    def state(self, target: Target) -> str:
        """What a target must be like at its end."""
        return f"{self.versions[target.repository]}/{self.marks[target.name]}"


def environment(folder: Path) -> dict[str, str]:
    """What the scripts find in their environment; CHAOS_FOLDER also marks every process of the campaign."""
    return {"CHAOS_PYTHON": sys.executable, "CHAOS_THING": str(THING), "CHAOS_FOLDER": str(folder)}
