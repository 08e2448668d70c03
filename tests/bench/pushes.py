"""GitHub's push deliveries as a forge sends them: one repository each, signed, every one with an id of its own."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from typing import Any

SECRET = b"bench-webhook-secret"
_COMMITS = 5
_LINKS = (
    "archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits", "compare", "contents",
    "contributors", "deployments", "downloads", "events", "forks", "git_commits", "git_refs", "git_tags", "hooks",
    "issue_comment", "issue_events", "issues", "keys", "labels", "languages", "merges", "milestones",
    "notifications", "pulls", "releases", "stargazers", "statuses", "subscribers", "subscription", "tags", "teams",
    "trees",
)  # fmt: skip


def repository_url(number: int) -> str:
    """Return the address of one of the fleet's repositories."""
    return f"https://github.com/bench/infra-{number:04d}"


def push_body(number: int) -> bytes:
    """Return the JSON of a push of some commits to the repository's main branch, about as large as real ones."""
    commits = [_commit(number, index) for index in range(_COMMITS)]
    document = {
        "ref": "refs/heads/main",
        "before": _sha(number, -1),
        "after": commits[-1]["id"],
        "repository": _repository(number),
        "pusher": {"name": "ann", "email": "ann@example.com"},
        "sender": {"login": "ann", "id": 4711, "type": "User", "site_admin": False},
        "created": False,
        "deleted": False,
        "forced": False,
        "base_ref": None,
        "compare": f"{repository_url(number)}/compare/{_sha(number, -1)[:12]}...{commits[-1]['id'][:12]}",
        "commits": commits,
        "head_commit": commits[-1],
    }
    return json.dumps(document).encode()


def requests(path: str, repositories: int, count: int) -> Iterator[bytes]:
    """Return whole HTTP requests, over the repositories in turn."""
    parts = [(body, _signature(body)) for body in (push_body(number) for number in range(repositories))]
    for index in range(count):
        body, signature = parts[index % repositories]
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: GitHub-Hookshot/bench\r\nAccept: */*\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nX-GitHub-Event: push\r\n"
            f"X-GitHub-Delivery: {uuid.uuid4()}\r\nX-GitHub-Hook-ID: 1\r\nX-Hub-Signature-256: {signature}\r\n\r\n"
        )
        yield head.encode() + body


def _signature(body: bytes) -> str:
    return "sha256=" + hmac.new(SECRET, body, "sha256").hexdigest()


def _sha(number: int, index: int) -> str:
    return hashlib.sha1(f"{number} {index}".encode(), usedforsecurity=False).hexdigest()


def _commit(number: int, index: int) -> dict[str, Any]:
    person = {"name": "Ann Example", "email": "ann@example.com", "username": "ann"}
    return {
        "id": _sha(number, index),
        "tree_id": _sha(number, 100 + index),
        "distinct": True,
        "message": f"Change {index} of the network\n\nSo that the bench has something to carry.",
        "timestamp": "2030-01-02T03:04:05+00:00",
        "url": f"{repository_url(number)}/commit/{_sha(number, index)}",
        "author": person,
        "committer": person,
        "added": [f"network/added-{index}.tf"],
        "removed": [],
        "modified": ["network/main.tf", "network/variables.tf"],
    }


def _repository(number: int) -> dict[str, Any]:
    url, name = repository_url(number), f"infra-{number:04d}"
    links = {f"{link}_url": f"https://api.github.com/repos/bench/{name}/{link}{{/id}}" for link in _LINKS}
    return {
        "id": number,
        "name": name,
        "full_name": f"bench/{name}",
        "private": True,
        "owner": {"name": "bench", "login": "bench", "id": 1, "type": "Organization"},
        "html_url": url,
        "clone_url": f"{url}.git",
        "ssh_url": f"git@github.com:bench/{name}.git",
        "git_url": f"git://github.com/bench/{name}.git",
        "url": f"https://api.github.com/repos/bench/{name}",
        "default_branch": "main",
        **links,
    }
