"""What all payloads share: a ref that moved, the repository's addresses, who did it; and the keys to match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from gitops_reconciler.git.urls import repository_keys
from gitops_services.receiver.base import Event, MalformedError, RefChange

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]|\.\.|@\{|//|/\.|\.lock(/|$)|[./]$")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_OBJECT_ID = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", re.ASCII)
_LONGEST_REF = 8192
_LONGEST_URL = 2048
_LONGEST_ACTOR = 100
_TRACKED = ("refs/heads/", "refs/tags/")


def change_of(document: Mapping[str, Any]) -> RefChange:
    """Return the change that `ref`, `before` and `after` describe. Raises `MalformedError`."""
    ref, before, after = document.get("ref"), document.get("before"), document.get("after")
    if not isinstance(ref, str):
        raise MalformedError("'ref' is not a string")
    if not _is_valid(ref):
        raise MalformedError("'ref' is no full and valid name of a ref")
    if not isinstance(before, str) or not isinstance(after, str):
        raise MalformedError("'before' or 'after' is not a string")
    if not _OBJECT_ID.fullmatch(before) or not _OBJECT_ID.fullmatch(after):
        raise MalformedError("'before' or 'after' is not an object id")
    return RefChange(ref=ref, before=before.lower(), after=after.lower())


def urls_of(values: Iterable[str | None]) -> tuple[str, ...]:
    """Return the addresses that can be compared, each once. Raises `MalformedError` when there is none."""
    urls = tuple(dict.fromkeys(url for url in values if url and len(url) <= _LONGEST_URL and keys_of(url)))
    if not urls:
        raise MalformedError("no address of the repository")
    return urls


def actor_of(provider: str, name: str | None) -> str:
    """Return who did it, fit for records and pages: `github:ann`."""
    clean = "".join(letter for letter in name or "" if letter.isprintable())[:_LONGEST_ACTOR]
    return f"{provider}:{clean}" if clean else provider


def watched_by(event: Event) -> list[str]:
    """Return the `repository key#ref` pairs to match, without refs that nothing can track (pull requests, notes)."""
    keys = sorted({key for url in event.urls for key in keys_of(url)})
    refs = dict.fromkeys(change.ref for change in event.changes if change.ref.startswith(_TRACKED))
    return [f"{key}#{ref}" for ref in refs for key in keys]


@lru_cache(maxsize=16_384)  # five addresses a push: enough for the repositories of a large fleet in turn
def keys_of(url: str) -> frozenset[str]:
    """Return the keys of an address; empty for one that could not be a target's."""
    try:
        keys = repository_keys(url)
    except ValueError:  # lone surrogates, which no file system and no encoding takes
        return frozenset()
    return frozenset(key for key in keys if not _SURROGATE.search(key))


def _is_valid(ref: str) -> bool:
    """Whether git could have a ref of that name: its own rules, so that nothing a target may track is refused."""
    return ref.startswith("refs/") and len(ref) <= _LONGEST_REF and not _FORBIDDEN.search(ref)
