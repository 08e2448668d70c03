"""Templates and how they write values; everything is escaped, whatever a repository or a tool put into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gitops_reconciler.redaction import printable
from gitops_reconciler.store.listings import Query, Sort
from gitops_services.api.views import CountsView

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|\x1b")
_SHORT_SHA = 8
_MINUTE, _HOUR, _TENTHS_BELOW = 60, 3600, 10


@cache
def environment() -> Environment:
    """Return the templates of the console."""
    made = Environment(
        loader=PackageLoader("gitops_services.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        short=lambda sha: sha[:_SHORT_SHA],
        when=when,
        due=due,
        plain=plain,
        duration=duration,
        cut=cut,
        first_line=first_line,
        words=lambda name: name.replace("_", " "),
        changes=changes,
        with_status=with_status,
        at=at_cursor,
    )
    made.globals["version"] = assets_version()
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a page or a part of one."""
    return environment().get_template(template).render(values)


@cache
def assets_version() -> str:
    """Return what changes with script and style, so that browsers take new ones at once and keep old ones for long."""
    folder = files("gitops_services.console") / "static"
    content = b"".join((folder / name).read_bytes() for name in ("console.css", "console.js"))
    return sha256(content).hexdigest()[:12]


def when(moment: datetime | None) -> str:
    """Return a time in UTC; the page's script tells how long ago that was."""
    return _time(moment, "") if moment else ""


def due(moment: datetime) -> str:
    """Return a time at which something is due; one that has passed is shown as such, not as long ago."""
    return _time(moment, "due")


def _time(moment: datetime, css: str) -> str:
    utc = moment.astimezone(UTC)
    return Markup('<time class="{}" datetime="{}">{}</time>').format(
        css, utc.isoformat(timespec="milliseconds"), f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    )


def duration(seconds: float) -> str:
    """Return `40 ms`, `1.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _TENTHS_BELOW:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


def cut(text: str, length: int) -> str:
    """Return a text that is not longer than that, without control characters."""
    clean = plain(text)
    return clean if len(clean) <= length else f"{clean[: length - 1]}…"


def first_line(text: str) -> str:
    """Return the first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def plain(text: str) -> str:
    """Return tool output as plain text: no colours, no control characters."""
    return printable(_COLOURS.sub("", text))


def changes(counts: CountsView) -> str:
    """Return what a run changed: `+1 ~2 -0`; nothing when that is nothing."""
    if not (counts.added or counts.changed or counts.removed):
        return ""
    return f"+{counts.added} ~{counts.changed} -{counts.removed}"


def query_text(query: Query) -> str:
    """Return a query as it stands in an address."""
    pairs = [
        *(("status", status) for status in query.status),
        *(("kind", kind) for kind in query.kind),
        ("q", query.q),
        ("sort", "" if query.sort is Sort.STATUS else query.sort.value),
        ("after", query.after),
    ]
    return urlencode([(name, value) for name, value in pairs if value])


def with_status(query: Query, status: str | None) -> str:
    """Return the address of the same list with another status, from its first page."""
    return query_text(replace(query, status=(status,) if status else (), after=""))


def at_cursor(query: Query, after: str | None) -> str:
    """Return the address of another page of the same list."""
    return query_text(replace(query, after=after or ""))
