"""The web application in the test's own process, over a real Redis."""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from redis import Redis
from starlette.testclient import TestClient

from gitops_reconciler.git.urls import repository_keys
from gitops_reconciler.outcomes import NextAsk, Trigger
from gitops_reconciler.settings import Settings
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.store.tokens import Role, Tokens
from gitops_reconciler.work.base import Cause, Claim, Completion, ItemSpec
from gitops_reconciler.work.redis import RedisWork
from gitops_services.app import create_app

SECRET = b"research-secret"
REPOSITORY = "https://forge.example/acme/infra.git"
SHA, OTHER_SHA, ZERO = "a" * 40, "b" * 40, "0" * 40


@dataclass
class Faces:
    """A running application, and both ends of it."""

    http: TestClient
    redis: Redis
    settings: Settings

    @property
    def work(self) -> RedisWork:
        return RedisWork(self.redis)

    @property
    def store(self) -> RedisStore:
        return RedisStore(self.redis)

    @property
    def secrets(self) -> Path:
        """The folder of the webhook secrets."""
        assert self.settings.webhook_secrets_dir is not None
        return self.settings.webhook_secrets_dir

    def target(
        self, name: str = "default/web", url: str = REPOSITORY, ref: str = "refs/heads/main", **changes: Any
    ) -> str:
        """Register a target that watches one ref of a repository."""
        fields: dict[str, Any] = {
            "item": name,
            "kind": "stdshell",
            "pool": "custom",
            "repository": min(repository_keys(url)),
            "refs": tuple(f"{key}#{ref}" for key in repository_keys(url)),
            "schedule": {"interval": 600},
            "facts": {"source": name.partition("/")[0], "url": url, "ref": ref, "path": "gitops/web.yaml"},
        }
        self.work.register(ItemSpec(**{**fields, **changes}), first_due_in_ms=60_000)
        return name

    def requested(self, item: str) -> int:
        """How often an item was asked for."""
        view = self.store.item(item)
        assert view is not None
        return view.requested

    def token(self, role: Role = Role.ADMIN, name: str = "ann") -> dict[str, str]:
        """Make a token; answers the header that carries it."""
        return {"authorization": f"Bearer {Tokens(self.redis).create(name, role)}"}

    def ran(self, item: str, state: str = "changed", status: str | None = "ready", **record: str) -> str:
        """Let an item have a run that ended; answers its id."""
        self.work.request([item], Cause(trigger=Trigger.WEBHOOK, actor="github:octocat"))
        claim = self.claimed(item)
        fields = {
            "state": state,
            "reason": "Applied",
            "message": "done",
            "revision": SHA,
            "subject": "Fix it",
            **record,
        }
        completion = Completion(
            record=fields, status=status, next_ask=NextAsk.INTERVAL, due_in_ms=600_000, applied=status == "ready"
        )
        assert self.work.complete(item, claim.token, claim.run, completion)
        return claim.run

    def claimed(self, item: str) -> Claim:
        """Let a run of an item begin."""
        claim = self.work.claim(item, uuid4().hex, ttl_ms=60_000, holder="worker-1")
        assert isinstance(claim, Claim), claim
        return claim

    def github(
        self, payload: object, *, event: str = "push", secret: bytes = SECRET, path: str = "github", **headers: str
    ) -> httpx.Response:
        """Deliver a payload as GitHub does, signed."""
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        sent = {
            "content-type": "application/json",
            "x-github-event": event,
            "x-hub-signature-256": sign(raw, secret),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        response: httpx.Response = self.http.post(f"/webhooks/{path}", content=raw, headers=sent)
        return response

    def gitlab(self, payload: object, *, token: str = SECRET.decode(), **headers: str) -> httpx.Response:
        """Deliver a payload as GitLab does, with its token."""
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        sent = {
            "content-type": "application/json",
            "x-gitlab-event": "Push Hook",
            "x-gitlab-token": token,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        response: httpx.Response = self.http.post("/webhooks/gitlab", content=raw, headers=sent)
        return response


def sign(raw: bytes, secret: bytes = SECRET) -> str:
    """The value of X-Hub-Signature-256."""
    return "sha256=" + hmac.new(secret, raw, hashlib.sha256).hexdigest()


def github_push(ref: str = "refs/heads/main", url: str = REPOSITORY, **changes: Any) -> dict[str, Any]:
    """A small push as GitHub describes it."""
    return {
        "ref": ref,
        "before": SHA,
        "after": OTHER_SHA,
        "repository": {"clone_url": url, "full_name": "acme/infra"},
        "pusher": {"name": "octocat"},
        **changes,
    }


def gitlab_push(ref: str = "refs/heads/main", url: str = REPOSITORY, **changes: Any) -> dict[str, Any]:
    """A small push as GitLab describes it."""
    return {
        "object_kind": "push",
        "ref": ref,
        "before": SHA,
        "after": OTHER_SHA,
        "user_username": "tanuki",
        "project": {"git_http_url": url},
        **changes,
    }


@contextmanager
def running_faces(
    redis_url: str,
    folder: Path,
    *,
    peer: str = "127.0.0.1",
    secrets: Mapping[str, bytes] | None = None,
    **settings: Any,
) -> Iterator[Faces]:
    """Run the application for clients at this address, with these webhook secrets."""
    secrets_dir = folder / "webhooks"
    secrets_dir.mkdir(exist_ok=True)
    for name, content in (secrets if secrets is not None else {"github": SECRET, "gitlab": SECRET}).items():
        (secrets_dir / name).write_bytes(content)
    made = Settings.model_validate(
        {"redis_url": redis_url, "state_dir": folder, "webhook_secrets_dir": secrets_dir, **settings}
    )
    with (
        Redis.from_url(redis_url, decode_responses=True) as client,
        TestClient(
            create_app(made),
            base_url="http://localhost",
            client=(peer, 50000),
            raise_server_exceptions=False,
            follow_redirects=False,
        ) as http,
    ):
        yield Faces(http=http, redis=client, settings=made)
