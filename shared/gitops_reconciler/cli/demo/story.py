"""The demo's story: each step does something to the fleet and waits until the promised follows, or fails loudly."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gitops_reconciler.cli.demo.alerts import Alerts
from gitops_reconciler.cli.demo.documents import BANNER, MOTD, NOTE, SLOW, file_document, path_of, rollout_document
from gitops_reconciler.cli.demo.fleet import DemoFailedError, Fleet
from gitops_reconciler.cli.demo.scratch import Pushed, Scratch
from gitops_reconciler.cli.demo.telling import Teller
from gitops_reconciler.cli.output import one_line
from gitops_reconciler.cli.targets import triggers_of

_PATIENCE_SECONDS = 120.0
_APPLY_SECONDS = 5
_GOOD = ("no_change", "changed")

Target = Mapping[str, Any]


def full(name: str) -> str:
    """Return the fleet-wide name of a target of the demo."""
    return f"default/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The steps, in order."""

    scratch: Scratch
    fleet: Fleet
    alerts: Alerts
    tell: Teller
    targets: int
    """How many the first commit declares."""

    def run(self) -> None:
        """Tell all of it.

        Raises:
            DemoFailedError: something did not come true.

        """
        self.tell.begin()
        steps = (
            self.targets_appear,
            self.a_push_is_applied,
            self.damage_is_healed,
            self.a_killed_worker_changes_nothing,
            self.a_bad_commit_alerts,
            self.what_left_git_goes_stale,
        )
        for step in steps:
            step()
        self.tell.summary()

    def targets_appear(self) -> None:
        """Show the address, and the targets before their first run."""
        self.tell.step("The fleet is up; its repository declares targets", 0)
        self.tell.say(f"console   {self.fleet.url}/")
        self.tell.say("type along, in another terminal:")
        self.tell.command(f"export GITOPS_STATE_DIR={self.scratch.state}")
        seen: Sequence[Target] = self._wait("all targets are known", self._all_targets)
        self.tell.targets(seen)
        self.tell.true(f"{len(seen)} targets; pending until their first run has ended")

    def _all_targets(self) -> Sequence[Target] | None:
        found = self.fleet.targets()
        return found if len(found) == self.targets else None

    def a_push_is_applied(self) -> None:
        """Push a change and wait until every target was run for it."""
        self.tell.step("A push is applied", 10)
        motd = self.scratch.managed / "motd"
        self._edit(MOTD, file_document(MOTD, motd, "hello, world", interval="2s"))
        sha = self._push("Greet the world")
        for target in self.fleet.targets():
            self._wait_for_pushed(target["name"], sha)
        self.tell.targets(self.fleet.targets())
        run = self._run(full(MOTD), lambda run: run["revision"] == sha and run["state"] == "changed")
        self._expect_text(motd, "hello, world")
        self.tell.true(f"all targets ran for {sha}, asked for by the webhook")
        self.tell.true(f"{motd}: {one_line(run['message'])}")

    def _wait_for_pushed(self, name: str, sha: str) -> None:
        self._wait(
            f"{name} is ready at {sha[:12]}, asked for by a webhook",
            lambda: self._run_or_none(
                name,
                lambda run: run["revision"] == sha and run["state"] in _GOOD and "webhook" in triggers_of(run),
            ),
        )

    def damage_is_healed(self) -> None:
        """Change a managed file behind the fleet's back."""
        self.tell.step("Damage is healed, with the reason", 20)
        motd = self.scratch.managed / "motd"
        known = {run["run"] for run in self.fleet.runs(full(MOTD)) if run["ended_at"]}
        self.tell.command(f"echo vandalised > {motd}")
        motd.write_text("vandalised\n", encoding="utf-8")
        healed = self._wait(
            "the damaged file is healed",
            lambda: self._run_or_none(full(MOTD), lambda run: run["state"] == "changed" and run["run"] not in known),
        )
        self._expect_text(motd, "hello, world")
        if "drifted" not in healed["message"]:
            message = f"the run that healed it does not say why: {healed['message']}"
            raise DemoFailedError(message)
        self.tell.command("gitops runs motd")
        self.tell.true(f"{one_line(healed['message'])}  (why it ran: {triggers_of(healed)})")

    def a_killed_worker_changes_nothing(self) -> None:
        """Kill the worker with SIGKILL in the middle of an apply, and count the applies."""
        self.tell.step("A worker is killed in the middle of an apply", 30)
        folder = self.scratch.managed / "slow"
        self._edit(SLOW, rollout_document(folder, "2", takes_seconds=_APPLY_SECONDS))
        sha = self._push("Roll out version 2")
        self._wait("the apply has begun", lambda: "start 2" in _lines(folder / "log"))
        pids = self.fleet.worker_pids()
        self.tell.command(f"kill -9 {' '.join(map(str, pids))}   # the worker, while the apply is at work")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait(
            f"{full(SLOW)} is rolled out at {sha[:12]}",
            lambda: self._run_or_none(full(SLOW), lambda run: run["revision"] == sha and run["state"] == "changed"),
        )
        self.tell.true("the run went on without its worker: its supervisor is a process of its own")
        self._wait("there is a new worker", lambda: set(self.fleet.worker_pids()) - set(pids))
        self.tell.command(f"gitops enqueue {SLOW} --wait 60   # by the new worker")
        generation = self.fleet.ask(full(SLOW))
        self._wait(f"{full(SLOW)} was run once more", lambda: self.fleet.observed(full(SLOW)) >= generation)
        applies = [line for line in _lines(folder / "log") if line.endswith(" 2")]
        if applies != ["start 2", "stop 2"]:
            message = f"there should be one apply of version 2, whole; its log says: {applies}"
            raise DemoFailedError(message)
        self.tell.true("one apply all the same: its log has one start and one stop of version 2")

    def a_bad_commit_alerts(self) -> None:
        """Break a target by a commit, and mend it by the revert."""
        self.tell.step("A bad commit alerts; its revert recovers", 40)
        nowhere = self.scratch.managed / "no-such-folder" / "banner"
        self._edit(BANNER, file_document(BANNER, nowhere, "welcome"))
        self._push("Move the banner (to a folder that does not exist)")
        alert = self._wait("the alert arrives", lambda: self.alerts.of("failed", full(BANNER)))
        self.tell.true(f"alert, signature checked: {alert['target']} {alert['event']}: {one_line(alert['message'])}")
        self.tell.command("git revert HEAD && git push")
        self._told(self.scratch.revert())
        alert = self._wait("the recovery arrives", lambda: self.alerts.of("recovered", full(BANNER)))
        self.tell.true(f"alert, signature checked: {alert['target']} {alert['event']}")
        if self.alerts.refused:
            message = f"{self.alerts.refused} alert(s) were signed wrongly"
            raise DemoFailedError(message)

    def what_left_git_goes_stale(self) -> None:
        """Remove a document, and look whether the real thing is still there."""
        self.tell.step("What left git goes stale and is not torn down", 55)
        self.tell.command(f"git rm {path_of(NOTE)} && git commit && git push")
        (self.scratch.clone / path_of(NOTE)).unlink()
        sha = self._push("Drop the note", is_shown=False)
        self._wait(f"{full(NOTE)} is stale", lambda: self._status(NOTE) == "stale")
        self._expect_text(self.scratch.managed / "note", "keep me")
        self.tell.true(f"{full(NOTE)} is stale, and {self.scratch.managed / 'note'} is still there")
        self.tell.targets(self._wait("all others are ready", lambda: self._settled(sha)))

    def _settled(self, sha: str) -> Sequence[Target] | None:
        """Return the targets once all that are still declared are ready at a revision."""
        found = self.fleet.targets()
        others = [item for item in found if item["name"] != full(NOTE)]
        return found if all((item["status"], item["applied_revision"]) == ("ready", sha) for item in others) else None

    # --- what the steps have in common ---------------------------------------------------------------------------

    def _edit(self, name: str, text: str) -> None:
        self.tell.command(f"$EDITOR {path_of(name)}")
        self.scratch.write({path_of(name): text})

    def _push(self, message: str, *, is_shown: bool = True) -> str:
        if is_shown:
            self.tell.command(f"git commit -am '{message}' && git push")
        return self._told(self.scratch.push(message))

    def _told(self, pushed: Pushed) -> str:
        self.tell.say(f"pushed {pushed.sha}; {pushed.hook_said or 'no webhook was sent'}")
        return pushed.sha

    def _wait(self, what: str, probe: Callable[[], Any]) -> Any:
        return self.fleet.wait_for(what, probe, seconds=_PATIENCE_SECONDS)

    def _status(self, name: str) -> str:
        return next((str(item["status"]) for item in self.fleet.targets() if item["name"] == full(name)), "unknown")

    def _run_or_none(self, name: str, fits: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any] | None:
        return next((run for run in self.fleet.runs(name) if fits(run)), None)

    def _run(self, name: str, fits: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._wait(f"a run of {name}", lambda: self._run_or_none(name, fits))
        return found

    @staticmethod
    def _expect_text(file: Path, text: str) -> None:
        lines = _lines(file)
        if lines != [text]:
            message = f"{file} should hold '{text}', and holds {lines or 'nothing'}"
            raise DemoFailedError(message)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
