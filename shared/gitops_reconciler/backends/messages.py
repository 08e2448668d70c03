"""What a backend says about a run: short, valid unicode, the end of a long text rather than its beginning."""

from __future__ import annotations

from collections.abc import Sequence

TAIL = 2000
_MOST_NAMES = 10


def tail(text: str, longest: int = TAIL) -> str:
    """Return the last characters of what a tool wrote, without surrounding space."""
    return valid(text).strip()[-longest:]


def head(text: str, longest: int = TAIL) -> str:
    """Return the first characters, with an ellipsis where something is missing."""
    clean = valid(text).strip()
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"


def listed(names: Sequence[str]) -> str:
    """Return the names in one line, and of very many only the first and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def valid(text: str) -> str:
    """Return the text with bytes that were no UTF-8 replaced, so that it can be stored and sent."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
