"""GitHub (github.com and Enterprise Server): HMAC over the raw body, JSON or form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_services.receiver.base import Event, EventKind, Headers, MalformedError, RawBody, Secrets
from gitops_services.receiver.parsing import text_of
from gitops_services.receiver.refs import actor_of, change_of, urls_of
from gitops_services.receiver.signatures import hub_sha256

_URLS = ("clone_url", "html_url", "ssh_url", "git_url", "url")


class GitHub:
    """Verifies `X-Hub-Signature-256` alone: the older SHA-1 header is not accepted, whatever else is there."""

    name = "github"
    takes_forms = True

    def verify(self, raw: RawBody, headers: Headers, secrets: Secrets) -> bool:
        """Whether the signature is right; a header that is there twice is no signature."""
        return hub_sha256(headers.one(b"x-hub-signature-256"), raw, secrets)

    def delivery(self, headers: Headers) -> str | None:
        """Return the GUID, which a manual redelivery keeps."""
        return headers.one(b"x-github-delivery")

    def read(self, document: Mapping[str, Any], headers: Headers) -> Event:
        """Return what the delivery says; only `push` moves anything, since `create` and `delete` say the same again."""
        name = headers.one(b"x-github-event")
        if name is None:
            raise MalformedError("the header X-GitHub-Event is missing")
        if name == "ping":
            return Event(kind=EventKind.PING, name=name)
        if name != "push":
            return Event(kind=EventKind.OTHER, name=name, reason=_why_not(name, document))
        repository = document.get("repository")
        if not isinstance(repository, Mapping):
            raise MalformedError("'repository' is not an object")
        return Event(
            kind=EventKind.PUSH,
            name=name,
            changes=(change_of(document),),
            urls=urls_of(text_of(repository, field) for field in _URLS),
            actor=actor_of("github", text_of(document, "pusher", "name") or text_of(document, "sender", "login")),
        )


def _why_not(name: str, document: Mapping[str, Any]) -> str:
    if name == "repository" and text_of(document, "action") in {"renamed", "transferred"}:
        return "the repository was renamed or moved: later pushes carry its new address"
    return "only pushes ask for anything"
