"""Lists of targets, filtered, sorted and paged here and not by whoever shows them; 10,000 targets cost some 60 ms.

One script returns brief rows, a batch at a time, so that Redis is never held up and what a list says is never old.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gitops_reconciler import keys
from gitops_reconciler.outcomes import TargetStatus
from gitops_reconciler.redis_text import AnyRedis, as_text
from gitops_reconciler.store.redis import shown_status

_BATCH = 500
_TABS = 7

URGENCY = (
    TargetStatus.FAILED,
    TargetStatus.STALLED,
    TargetStatus.UNREACHABLE,
    TargetStatus.RUNNING,
    TargetStatus.DELETING,
    TargetStatus.PENDING,
    TargetStatus.STALE,
    TargetStatus.SUSPENDED,
    TargetStatus.READY,
    TargetStatus.DESTROYED,
)
"""What a person wants to see first."""
_RANK = {status.value: rank for rank, status in enumerate(URGENCY)}


class Sort(StrEnum):
    """In which order a list comes."""

    NAME = "name"
    STATUS = "status"
    """By urgency: failed first; by name within a status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What lists filter and sort by."""

    name: str
    kind: str
    pool: str
    status: str
    labels_text: str
    """JSON, read only when a list asks for labels."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The target's labels; none where they can't be read."""
        try:
            labels = json.loads(self.labels_text or "{}")
        except ValueError:
            return {}
        return labels if isinstance(labels, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which targets, in which order, from where on. Empty fields match everything."""

    status: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    labels: tuple[tuple[str, str | None], ...] = ()
    """Each must be there, with that value; None: with any value."""
    q: str = ""
    """Part of the short name, or of the full one where it has a slash."""
    sort: Sort = Sort.NAME
    limit: int = 100
    after: str = ""
    """`Page.next` of the page before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of names."""

    names: list[str]
    next: str | None
    """Cursor of the page after this one; None: this was the last."""
    total: int
    """How many match on all pages."""
    counts: Counter[str] = field(default_factory=Counter)
    """How many targets of the whole fleet are in each status, whatever the query asks for."""
    kinds: frozenset[str] = frozenset()
    """The kinds that occur in the whole fleet."""


class Listing:
    """Reads lists through one client (decode_responses=True). Safe to share between threads."""

    def __init__(self, client: AnyRedis) -> None:
        """Read through this client."""
        self._script = as_text(client).register_script(keys.script("list"))

    def briefs(self) -> Iterator[Brief]:
        """Return all targets in the order of their names."""
        last: str = ""
        while True:
            last, *rows = self._script(keys=[keys.PREFIX], args=["{}", last, _BATCH])
            for row in rows:
                if not row.startswith(keys.SOURCE_PREFIX):
                    yield _brief(*row.split("\t", _TABS))
            if not last:
                return

    def page(self, query: Query) -> Page:
        """Return one page. Raises ValueError when `after` is no cursor of such a list."""
        after = _read_cursor(query.after, query.sort)
        counts: Counter[str] = Counter()
        kinds: set[str] = set()
        found: list[tuple[int, str]] = []
        for brief in self.briefs():
            counts[brief.status] += 1
            kinds.add(brief.kind)
            if _matches(brief, query):
                found.append((_RANK.get(brief.status, len(_RANK)) if query.sort is Sort.STATUS else 0, brief.name))
        found.sort()
        rest = [key for key in found if after is None or key > after]
        shown = rest[: query.limit]
        more = len(rest) > query.limit
        return Page(
            names=[name for _, name in shown],
            next=_cursor(query.sort, shown[-1]) if more and shown else None,
            total=len(found),
            counts=counts,
            kinds=frozenset(kinds),
        )


def _brief(  # noqa: PLR0917  # the columns of a row, in their order
    name: str, kind: str, pool: str, status: str, stale: str, suspended: str, desired: str, labels: str
) -> Brief:
    fields = {"status": status, "stale": stale, "suspended": suspended, "desired": desired}
    shown = shown_status({column: value for column, value in fields.items() if value}) if stale or suspended else status
    return Brief(name=name, kind=kind, pool=pool, status=shown, labels_text=labels)


def _matches(brief: Brief, query: Query) -> bool:
    return (
        (not query.status or brief.status in query.status)
        and (not query.kind or brief.kind in query.kind)
        and (not query.pool or brief.pool in query.pool)
        and _is_named(brief.name, query.q.lower())
        and (not query.labels or _has_labels(brief.labels, query))
    )


def _has_labels(labels: Mapping[str, str], query: Query) -> bool:
    return all(labels.get(name) == value if value is not None else name in labels for name, value in query.labels)


def _is_named(name: str, part: str) -> bool:
    """Whether the part occurs in the short name, or in the full one where the part has a slash."""
    return part in (name if "/" in part else name.rpartition("/")[2])


def _cursor(sort: Sort, key: tuple[int, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort.value, *key]).encode()).decode().rstrip("=")


def _read_cursor(text: str, sort: Sort) -> tuple[int, str] | None:
    if not text:
        return None
    try:
        kind, rank, name = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError, RecursionError):
        kind, rank, name = "", None, None
    if kind != sort.value or not isinstance(rank, int) or not isinstance(name, str):
        message = "'after' is no cursor of this list (use the 'next' of the page before, with the same sort)"
        raise ValueError(message)
    return rank, name
