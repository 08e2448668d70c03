"""A push, as a forge sends it: signed, to the receiver of a running `gitops up`, until the result is in the store."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from gitops_reconciler.layout import Layout
from tests.support.git_repos import GitUpstream
from tests.support.processes import eventually
from tests.support.redis_server import require_redis_binary
from tests.support.roles import RoleProcess, running_roles

pytest.importorskip("supervisor")
pytest.importorskip("fastapi")

START_SECONDS = 60.0
RUN_SECONDS = 60.0
KIND = """\
type: manifest
kind: note
schema: {type: object, required: [file], properties: {file: {type: string}}}
scripts:
  apply: |
    [ -e "$SPEC_FILE" ] && exit 0
    touch "$SPEC_FILE"; exit 3
"""


@dataclass
class Up:
    """A running `gitops up` with one source, and what a forge and an operator need to talk to it."""

    role: RoleProcess
    layout: Layout
    upstream: GitUpstream
    notes: Path

    @property
    def url(self) -> str:
        return str(json.loads(self.layout.up_file.read_text())["url"])

    def get(self, path: str) -> Any:
        with urlopen(f"{self.url}{path}", timeout=10) as answer:
            return json.load(answer)

    def target(self, name: str) -> dict[str, Any]:
        with suppress(HTTPError):
            found: dict[str, Any] = self.get(f"/api/v1/targets/{name}")
            return found
        return {}

    def last_run(self, name: str) -> dict[str, Any]:
        runs = self.get(f"/api/v1/targets/{name}/runs")["items"]
        return dict(runs[0]) if runs else {}

    def deliver(self, ref: str, after: str, *, url: str = "", secret: str = "") -> tuple[int, dict[str, Any]]:
        """Send a push event of GitHub's form; answers status and body."""
        body = json.dumps(
            {
                "ref": ref,
                "before": "1" * 40,
                "after": after,
                "repository": {"clone_url": url or self.upstream.url, "full_name": "acme/infra"},
                "commits": [],
            }
        ).encode()
        key = secret or (self.layout.secrets / "webhooks" / "github").read_text().strip()
        request = Request(
            f"{self.url}/webhooks/github",
            data=body,
            method="POST",
            headers={
                "Content-Type": "application/json",
                "X-GitHub-Event": "push",
                "X-GitHub-Delivery": str(uuid4()),
                "X-Hub-Signature-256": "sha256=" + hmac.new(key.encode(), body, hashlib.sha256).hexdigest(),
            },
        )
        try:
            with urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)


def document(name: str, notes: Path, **more: str) -> str:
    extra = "".join(f"{key}: {value}\n" for key, value in more.items())
    return f"type: resource\nkind: note\nname: {name}\ninterval: 'off'\n{extra}spec: {{file: {notes / name}}}\n"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    require_redis_binary()
    folder = tmp_path_factory.mktemp("push")
    notes = folder / "notes"
    notes.mkdir()
    upstream = GitUpstream.create(folder, "infra")
    other = GitUpstream.create(folder, "other")
    other.publish({"x": "1"}, "other")
    upstream.publish(
        {
            "gitops/gitops.yaml": "app: notes\n",
            "gitops/kind.yaml": KIND,
            "gitops/here.yaml": document("here", notes),
            "gitops/there.yaml": document("there", notes, repo=other.url, branch="main"),
            "gitops/dev.yaml": document("dev", notes, repo=upstream.url, branch="dev"),
        },
        "first",
    )
    upstream.push("HEAD:refs/heads/dev")
    environ = {"GITOPS_REPO_URL": upstream.url, "GITOPS_GIT_ALLOW_LOCAL": str(folder)}
    with running_roles(folder / "up") as roles:
        command = [sys.executable, "-m", "gitops_reconciler.cli", "up", "--port", "0", "--no-flower"]
        started = Up(roles.run(command, environ=environ), Layout(roles.folder / "state"), upstream, notes)

        def are_ready() -> bool:
            with suppress(OSError, ValueError, KeyError):
                return all(started.target(name).get("status") == "ready" for name in ("here", "there", "dev"))
            return False

        assert eventually(are_ready, within=START_SECONDS), started.role.text()
        yield started


@pytest.mark.req("RM.1", "RM.6", "R0.16", "T16")
def test_a_push_ends_in_the_store_with_its_revision_and_trigger_for_exactly_its_targets(up: Up) -> None:
    before = {name: up.last_run(name)["run"] for name in ("there", "dev")}
    sha = up.upstream.publish({"README.md": "hello"}, "hello")
    status, body = up.deliver("refs/heads/main", sha)
    assert status == 202, body
    assert eventually(lambda: up.target("here")["applied_revision"] == sha, within=RUN_SECONDS)
    run = up.last_run("here")
    assert run["revision"] == sha
    assert "webhook" in {cause["trigger"] for cause in run["causes"]}
    assert {name: up.last_run(name)["run"] for name in before} == before


@pytest.mark.req("RM.1", "R4.1")
def test_a_push_to_a_branch_that_nobody_follows_is_ignored_with_200(up: Up) -> None:
    before = {name: up.last_run(name)["run"] for name in ("here", "there", "dev")}
    status, body = up.deliver("refs/heads/feature/x", "2" * 40)
    assert (status, body["status"]) == (200, "ignored")
    assert {name: up.last_run(name)["run"] for name in before} == before


def test_a_wrong_signature_is_refused_and_asks_for_nothing(up: Up) -> None:
    requested = up.target("here")["requested"]
    status, _ = up.deliver("refs/heads/main", "2" * 40, secret="wrong")  # a wrong one, made up here
    assert status == 401
    assert up.target("here")["requested"] == requested


def test_the_sha_of_a_delivery_is_a_hint_and_never_applied(up: Up) -> None:
    tip = up.upstream.head
    requested = up.target("here")["requested"]
    status, _ = up.deliver("refs/heads/main", "3" * 40)
    assert status == 202
    assert eventually(lambda: up.target("here")["observed"] > requested, within=RUN_SECONDS)
    assert up.target("here")["applied_revision"] == tip
