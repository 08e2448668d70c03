"""GitLab: the secret token in clear, or the signing token of GitLab 19; project hooks and system hooks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from gitops_services.receiver.base import Clock, Event, EventKind, Headers, MalformedError, RawBody, Secrets
from gitops_services.receiver.parsing import object_at, text_of
from gitops_services.receiver.refs import actor_of, change_of, urls_of
from gitops_services.receiver.signatures import SIGNING_PREFIX, plain_token, standard_v1

_URLS = ("git_http_url", "git_ssh_url", "web_url", "http_url", "ssh_url", "homepage", "url")
_PUSHES = frozenset({"push", "tag_push"})


class GitLab:
    """Once one of the secrets is a signing token (`whsec_…`), only signed deliveries count."""

    name = "gitlab"
    takes_forms = False

    def __init__(self, clock: Clock = time.time) -> None:
        """Compare signed timestamps with this clock."""
        self._clock = clock

    def verify(self, raw: RawBody, headers: Headers, secrets: Secrets) -> bool:
        """Whether the token or the signature is right; there is no way back from a signature to the token."""
        keys = Secrets(values=tuple(value for value in secrets.values if value.startswith(SIGNING_PREFIX)))
        if not keys.values:
            return plain_token(headers.one(b"x-gitlab-token"), secrets)
        return standard_v1(
            delivery=headers.one(b"webhook-id"),
            timestamp=headers.one(b"webhook-timestamp"),
            signature=headers.one(b"webhook-signature"),
            raw=raw,
            keys=keys,
            now=self._clock(),
        )

    def delivery(self, headers: Headers) -> str | None:
        """Return the idempotency key, stable over retries; the event's UUID is not, since recursive hooks share it."""
        return headers.one(b"webhook-id") or headers.one(b"idempotency-key")

    def read(self, document: Mapping[str, Any], headers: Headers) -> Event:
        """Return what the delivery says; the body decides, as system hooks share one event header."""
        name = text_of(document, "object_kind") or text_of(document, "event_name")
        if not name:
            raise MalformedError("neither 'object_kind' nor 'event_name' is a string")
        if name not in _PUSHES and name != "repository_update":
            return Event(kind=EventKind.OTHER, name=name, reason=_why_not(name))
        changes = (change_of(document),) if name in _PUSHES else tuple(map(change_of, _listed(document)))
        project, repository = object_at(document, "project"), object_at(document, "repository")
        return Event(
            kind=EventKind.PUSH,
            name=name,
            changes=changes,
            urls=urls_of(text_of(place, field) for place in (project, repository) for field in _URLS),
            actor=actor_of("gitlab", text_of(document, "user_username") or text_of(document, "user_name")),
        )


def _listed(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the changes of a `repository_update`: one push, any number of refs."""
    changes = document.get("changes")
    if not isinstance(changes, list):
        raise MalformedError("'changes' is not a list")
    for change in changes:
        if not isinstance(change, Mapping):
            raise MalformedError("an entry of 'changes' is not an object")
        yield change


def _why_not(name: str) -> str:
    if name in {"project_rename", "project_transfer", "group_rename"}:
        return "a project was renamed or moved: later pushes carry its new address"
    return "only pushes ask for anything"
