"""What the two screens show, read anew each time: a page of the fleet, and one target."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gitops_reconciler import keys
from gitops_reconciler.store.listings import URGENCY, Page, Query, Sort
from gitops_services.api.runs import log_of
from gitops_services.api.views import run_brief, sources_of, targets_of
from gitops_services.console.rendering import plain, query_text, render
from gitops_services.parts import Parts

PAGE_SIZE = 100
_RUNS_SHOWN = 15
_LOG_SHOWN = 64 * 1024
_SWEEP_OVERDUE_SECONDS = 30.0
_KEPT_SECONDS = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Rendered parts of a screen: those that are replaced as a whole, and the rows of the list in their order."""

    parts: Mapping[str, str]
    rows: Mapping[str, str] = field(default_factory=dict)


class Lists:
    """Pages of names, read once for all who watch the same list."""

    def __init__(self, parts: Parts) -> None:
        """Read from these parts."""
        self._parts = parts
        self._lock = threading.Lock()
        self._kept: dict[tuple[Query, int], tuple[float, Page]] = {}

    def page(self, query: Query, version: int | None) -> Page:
        """Return a page of that version of the fleet; None: as it is now. Raises ValueError for a wrong cursor."""
        if version is None:
            return self._parts.listing.page(query)
        with self._lock:
            now = time.monotonic()
            self._kept = {known: kept for known, kept in self._kept.items() if now - kept[0] < _KEPT_SECONDS}
            if (query, version) not in self._kept:
                self._kept[query, version] = (now, self._parts.listing.page(query))
            return self._kept[query, version][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetScreen:
    """The fleet at a glance: counts, a page of targets, sources."""

    parts: Parts
    lists: Lists
    query: Query

    @property
    def live_query(self) -> str:
        """What the live stream of this screen is asked with."""
        return query_text(self.query)

    def values(self, version: int | None = None) -> dict[str, Any]:
        """Return what the templates show. Raises ValueError when the query's cursor is none."""
        page = self.lists.page(self.query, version)
        return {
            "query": self.query,
            "live_query": self.live_query,
            "targets": targets_of(self.parts.store, self.parts.fleet, page.names),
            "total": page.total,
            "next": page.next,
            "counts": _counts(page.counts),
            "fleet_total": page.counts.total(),
            "kinds": sorted(page.kinds),
            "is_filtered": bool(self.query.status or self.query.kind or self.query.q),
            "sources": sources_of(self.parts.store),
            "swept_at": _overdue_sweep(self.parts),
            **notices_of(self.parts),
        }

    def show(self, version: int) -> Shown:
        """Return the parts that may change, as of that version of the fleet."""
        values = self.values(version)
        names = ("notices", "summary", "paging", "sources")
        return Shown(
            parts={name: render(f"_{name}.html", values) for name in names},
            rows={f"row-{target.name}": render("_row.html", {"target": target}) for target in values["targets"]},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetScreen:
    """One target: how it stands, its last runs, the log of the latest."""

    parts: Parts
    name: str

    @property
    def live_query(self) -> str:
        """What the live stream of this screen is asked with."""
        return f"target={self.name}"

    def values(self) -> dict[str, Any] | None:
        """Return what the templates show; None when there is no such target."""
        found = targets_of(self.parts.store, self.parts.fleet, [self.name])
        if not found:
            return None
        runs = [run_brief(view) for view in self.parts.store.runs(self.name, limit=_RUNS_SHOWN)]
        latest = self.parts.store.run(runs[0].run) if runs else None
        log = plain(log_of(self.parts, latest)) if latest else ""
        shown = {"target": found[0], "runs": runs, "log": log[-_LOG_SHOWN:], "live_query": self.live_query}
        return {**shown, **notices_of(self.parts)}

    def show(self, _version: int) -> Shown:
        """Return the parts that may change."""
        values = self.values()
        if values is None:
            return Shown(parts={})
        return Shown(parts={name: render(f"_{name}.html", values) for name in ("notices", "head", "runs", "log")})


Screen = FleetScreen | TargetScreen


def notices_of(parts: Parts) -> dict[str, Any]:
    """Return what every page says first: that the fleet is paused, that asks wait where nobody takes them."""
    return {"pause": parts.fleet.pause(), "dead_pools": parts.fleet.dead_pools()}


def fleet_query(parameters: Mapping[str, list[str]]) -> Query:
    """Return the query of an address; what it does not know is left out."""
    known = {status.value for status in URGENCY}
    return Query(
        status=tuple(status for status in parameters.get("status", []) if status in known),
        kind=tuple(kind for kind in parameters.get("kind", []) if kind),
        q=next(iter(parameters.get("q", [])), "").strip()[:200],
        sort=Sort.NAME if parameters.get("sort") == [Sort.NAME.value] else Sort.STATUS,
        limit=PAGE_SIZE,
        after=next(iter(parameters.get("after", [])), "")[:1000],
    )


def _counts(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return the counts of statuses that occur, the most urgent first; `failed` and `ready` always."""
    always = {"failed", "ready"}
    return [
        (status.value, counts[status.value]) for status in URGENCY if counts[status.value] or status.value in always
    ]


def _overdue_sweep(parts: Parts) -> datetime | str | None:
    """Return when the schedule was looked at last, when that is too long ago; `never`; None when all is well."""
    swept = parts.client.hget(keys.SWEPT, "at")
    if not swept:
        return "never"
    at = float(swept) / 1000
    return datetime.fromtimestamp(at, UTC) if time.time() - at > _SWEEP_OVERDUE_SECONDS else None
