"""Secrets are taken out by value, at the one place where output leaves a run; URLs lose their user-info everywhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

MASK = "***"
# Anchored at the rare "://", and bounded: searched in 100 MB without a newline it must not go quadratic.
_USER_INFO = re.compile(r"://(?P<user>[^\s/@'\"<>]{1,1024})@")
_PLAIN_USER_SCHEMES = ("ssh", "git+ssh", "ssh+git")
_LONGEST_SCHEME = 16
_SHORTEST = 4  # masking every "1" or "no" would destroy a log and hide nothing
_CONTROL = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


def redact_url(text: str) -> str:
    """Replace `user:password@` of every URL in the text: `https://u:p@h/r` becomes `https://***@h/r`.

    The user of an `ssh://git@host` URL is no secret and stays.
    """

    def mask(match: re.Match[str]) -> str:
        before = text[max(0, match.start() - _LONGEST_SCHEME) : match.start()].lower()
        scheme = re.search(r"[a-z0-9+.-]*$", before)
        keep = scheme is not None and scheme[0] in _PLAIN_USER_SCHEMES and ":" not in match["user"]
        return match[0] if keep else f"://{MASK}@"

    return _USER_INFO.sub(mask, text)


def printable(text: str) -> str:
    """Drop colours and control characters, but newline and tab, that remote text may carry (CVE-2024-52005)."""
    return _CONTROL.sub("", text)


class Redactor:
    """Knows the secret values of one run and takes them out of any text or JSON-like value."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Start with these secret values."""
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Remember a secret: its lines, and its URL-, JSON- and base64-encoded forms, are masked from now on."""
        for form in _forms(value):
            if len(form) >= _SHORTEST:
                self._values.add(form)
        self._pattern = None

    def text(self, text: str) -> str:
        """Return the text without any known secret and without user-info in URLs."""
        if self._values and self._pattern is None:
            longest_first = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile("|".join(re.escape(value) for value in longest_first))
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return redact_url(text)

    def value(self, value: Any) -> Any:  # any JSON-like value
        """Return a JSON-like value with every string in it redacted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


def _forms(value: str) -> Iterable[str]:
    stripped = value.strip()
    yield value
    yield stripped
    yield from (line.strip() for line in stripped.splitlines())
    yield quote(stripped, safe="", errors="surrogateescape")
    yield json.dumps(stripped)[1:-1]
    if stripped:
        yield base64.b64encode(stripped.encode("utf-8", "surrogateescape")).decode()
