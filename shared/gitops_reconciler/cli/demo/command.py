"""`gitops demo`: puts the parts of the demo together, and takes them apart again whatever happens."""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Self

from gitops_reconciler.cli.exits import Exit
from gitops_reconciler.cli.parsing import Parser
from gitops_reconciler.errors import GitopsError

if TYPE_CHECKING:
    from gitops_reconciler.cli.demo.alerts import Alerts, Verify
    from gitops_reconciler.cli.demo.fleet import Fleet
    from gitops_reconciler.cli.demo.scratch import Scratch
    from gitops_reconciler.cli.demo.telling import Teller

_EXAMPLES = """
gitops demo          # stays up until Ctrl-C, so that you can play with it
gitops demo --once   # ends by itself; last line `demo: ok`
"""
_CHECK_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OLDEST_TERRAFORM = (1, 4)  # has terraform_data


def configure(parser: Parser) -> None:
    """Say what `demo` takes."""
    parser.describe(
        "Shows everything on a scratch folder: a push is applied, damage is healed, a worker is killed, a bad commit "
        "alerts, what left git goes stale. Each step shows the command that you would type.",
        "Needs git, no root, no network; uses terraform and ansible where they are installed. Nothing outside a "
        "temporary folder is written, and nothing is left.",
    )
    parser.add_argument("--once", action="store_true", help="end when the story is told")
    parser.add_argument("--keep", action="store_true", help="leave the scratch folder where it is")
    parser.teach(_EXAMPLES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Tell the story, then stay or end; whatever happens, nothing is left."""
    from gitops_reconciler.cli.demo.alerts import receiving_alerts
    from gitops_reconciler.cli.demo.scratch import scratch_folder

    key = secrets.token_bytes(32)
    try:
        with (
            _Interrupts() as interrupts,
            scratch_folder(keep=arguments.keep) as scratch,
            receiving_alerts(_verifier(key)) as alerts,
        ):
            _play(arguments, scratch, alerts, key, interrupts)
    except GitopsError as error:
        print(f"demo: failed: {error}", file=sys.stderr)
        return Exit.FAILED
    if arguments.keep:
        print(f"kept: {scratch.root}")
    print("demo: ok")
    return Exit.OK


def _play(arguments: argparse.Namespace, scratch: Scratch, alerts: Alerts, key: bytes, interrupts: _Interrupts) -> None:
    from gitops_reconciler.cli.demo.fleet import DemoFailedError, running_fleet, tail_of
    from gitops_reconciler.cli.demo.hook import write_hook
    from gitops_reconciler.cli.demo.story import Story
    from gitops_reconciler.cli.demo.telling import Teller

    tell = Teller()
    targets = _first_commit(scratch, tell)
    tell.say(f"scratch folder: {scratch.root}")
    tell.command("gitops up")
    with running_fleet(scratch, _settings(scratch, alerts, key)) as fleet:
        try:
            secret_file = fleet.layout.webhook_secrets / "github"
            write_hook(scratch.bare, python=sys.executable, url=f"{fleet.url}/webhooks/github", secret_file=secret_file)
            Story(scratch=scratch, fleet=fleet, alerts=alerts, tell=tell, targets=targets).run()
            if not arguments.once:
                _stay(fleet, scratch, tell)
        except GitopsError as error:
            with suppress(GitopsError):
                tell.targets(fleet.targets())
            print(f"\n--- end of {fleet.log}", *tail_of(fleet.log), "---", sep="\n", file=sys.stderr)
            message = f"{error}{'' if fleet.is_alive() else ' (`gitops up` has ended)'}"
            raise DemoFailedError(message) from error
        finally:
            interrupts.ignore()
            tell.say("ending the fleet …")


def _first_commit(scratch: Scratch, tell: Teller) -> int:
    """Make and push the first tree, with the tools that this machine has; returns how many targets it declares."""
    from gitops_reconciler.cli.demo.documents import first_tree

    has_terraform, has_ansible = _has_terraform(scratch), _answers(scratch, "ansible-playbook", "--version") is not None
    for tool, is_there in (("terraform 1.4 or newer", has_terraform), ("ansible-playbook", has_ansible)):
        if not is_there:
            tell.say(f"{tool} is not installed: left out")
    files = first_tree(scratch.managed, with_terraform=has_terraform, with_ansible=has_ansible)
    scratch.write(files)
    scratch.push("Declare the first targets")
    return sum("\ntype: resource\n" in f"\n{text}" for text in files.values())


def _has_terraform(scratch: Scratch) -> bool:
    try:
        version = json.loads(_answers(scratch, "terraform", "version", "-json") or "{}")["terraform_version"]
        return tuple(int(part) for part in version.split(".")[:2]) >= _OLDEST_TERRAFORM
    except (ValueError, KeyError, TypeError):
        return False


def _answers(scratch: Scratch, *argv: str) -> str | None:
    """Return what a tool answers; None where it is not to be had."""
    from gitops_reconciler.clock import Deadline
    from gitops_reconciler.processes import SubprocessRunner

    try:
        done = SubprocessRunner().run(argv, cwd=scratch.root, env=scratch.env, deadline=Deadline.after(_CHECK_SECONDS))
    except GitopsError:
        return None
    return done.stdout if done.returncode == 0 else None


def _settings(scratch: Scratch, alerts: Alerts, key: bytes) -> Mapping[str, str]:
    (scratch.secrets / "alerts").write_text("whsec_" + base64.b64encode(key).decode(), encoding="utf-8")
    return {
        "GITOPS_REPO_URL": str(scratch.bare),
        "GITOPS_GIT_ALLOW_LOCAL": str(scratch.root),
        "GITOPS_SECRETS_DIR": str(scratch.secrets),
        "GITOPS_NOTIFY": alerts.url,
        "GITOPS_NOTIFY_SECRET": "file:alerts",
        "GITOPS_LEASE_GRACE": "10s",
        "CHECKPOINT_DISABLE": "1",
    }


def _verifier(key: bytes) -> Verify:
    """Return the check of a signature after Standard Webhooks."""

    def verify(headers: Mapping[str, str], body: bytes) -> bool:
        signed = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        return hmac.compare_digest(headers.get("webhook-signature", ""), expected)

    return verify


def _stay(fleet: Fleet, scratch: Scratch, tell: Teller) -> None:
    """Leave the fleet running until Ctrl-C."""
    lines = (
        "",
        f"The fleet stays up until Ctrl-C: {fleet.url}/",
        "Try this in another terminal:",
        f"  export GITOPS_STATE_DIR={scratch.state}",
        "  gitops targets; gitops runs motd; gitops targets motd",
        f"  cd {scratch.clone}; $EDITOR gitops/motd.yaml; git commit -am change; git push",
        f"  rm {scratch.managed}/motd    # it comes back",
        f"Log of all processes: {fleet.log}",
    )
    print("\n".join(lines), flush=True)
    try:
        while fleet.is_alive():
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        tell.say("Ctrl-C")
        return
    from gitops_reconciler.cli.demo.fleet import DemoFailedError

    message = "`gitops up` has ended by itself"
    raise DemoFailedError(message)


class _Interrupts:
    """Lets the first signal that asks us to end interrupt the story, and none the cleaning up."""

    def __enter__(self) -> Self:
        self._is_ending = False
        self._before = {number: signal.signal(number, self._interrupt) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore what comes from now on."""
        self._is_ending = True

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_ending:
            self._is_ending = True
            raise KeyboardInterrupt
