"""Secrets stand in documents by reference only (R0.59): what looks like one in clear is refused, and never shown."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any

from gitops_reconciler.errors import Reason
from gitops_reconciler.manifests.problems import Complaint, Where, field_name, shown
from gitops_reconciler.secrets import ENV_PREFIX, is_reference

_ALLOWED = f"file:NAME or env:{ENV_PREFIX}NAME"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_KEY = re.compile(
    r"(?:^|[^a-z])(?:pass(?:word|wd|phrase)s?|secrets?|tokens?|credentials?"
    r"|(?:api|access|secret|private|account|encryption|signing)[^a-z]?keys?|access[^a-z]?key[^a-z]?id)[0-9]*$"
)
_TEMPLATE = re.compile(r"\s*(?:\{\{[^{}]*\}\}|\$\{[^{}]*\}|\$[A-Za-z_][A-Za-z0-9_]*)\s*")
_SECRET_VALUES = (
    re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\bgh[opusr]_[A-Za-z0-9]{36}"),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{22}"),
    re.compile(r"\bglpat-[A-Za-z0-9_-]{20}"),
    re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10}"),
    re.compile(r"\bhttps?://[^\s/@:'\"]{1,256}:[^\s/@'\"]{1,256}@"),
)


def names_a_secret(key: str) -> bool:
    """Whether a value under this key would be a secret: `db_password`, `apiKey`, `AWS_SECRET_ACCESS_KEY`."""
    return _SECRET_KEY.search(_HUMP.sub("_", key).lower()) is not None


def holds_a_secret(text: str) -> bool:
    """Whether a text has the form of a key or token that is in use out there."""
    return any(pattern.search(text) for pattern in _SECRET_VALUES)


def secret_complaints(value: Any, where: Where, may_refer: Container[str] | None = None) -> Iterator[Complaint]:
    """Find secrets in clear, and references that could never be resolved.

    `may_refer` are the keys of the topmost map below which references are resolved; None: everywhere.
    """
    for place, text, is_secret in _leaves(value, where, is_secret=False):
        inside = place[len(where) :]
        if is_reference(text):
            refers = may_refer is None or (bool(inside) and str(inside[0]) in may_refer)
            yield from _reference_complaints(text, place, refers=refers)
        elif _is_clear(text, is_secret=is_secret):
            message = f"'{field_name(place)}' holds a secret in clear: refer to it as {_ALLOWED}"
            yield Complaint(where=place, message=message, reason=Reason.INVALID_SPEC)


def _leaves(value: Any, where: Where, *, is_secret: bool) -> Iterator[tuple[Where, Any, bool]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*where, key), is_secret=names_a_secret(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*where, index), is_secret=is_secret)
    else:
        yield where, value, is_secret


def _is_clear(value: Any, *, is_secret: bool) -> bool:
    if isinstance(value, str):
        return holds_a_secret(value) or (is_secret and bool(value) and not _TEMPLATE.fullmatch(value))
    return is_secret and isinstance(value, int | float) and not isinstance(value, bool)


def _reference_complaints(reference: str, where: Where, *, refers: bool) -> Iterator[Complaint]:
    scheme, _, name = reference.partition(":")
    if not refers:
        message = f"'{field_name(where)}' cannot be a secret reference"
    elif scheme == "env" and not name.startswith(ENV_PREFIX):
        message = f"'{field_name(where)}': {shown(reference)} may only name variables that begin with {ENV_PREFIX}"
    elif scheme == "file" and (name.startswith("/") or ".." in name.split("/")):
        message = f"'{field_name(where)}': {shown(reference)} must be a name below GITOPS_SECRETS_DIR"
    else:
        return
    yield Complaint(where=where, message=message, reason=Reason.INVALID_SPEC)
