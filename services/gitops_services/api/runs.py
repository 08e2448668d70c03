"""Runs: the latest of all or of one target, and one with its log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as PathParameter

from gitops_reconciler.errors import UnknownTargetError
from gitops_reconciler.store.redis import RunView
from gitops_services.api.targets import Limit, RunPage
from gitops_services.api.views import RunFull, run_brief, run_full
from gitops_services.parts import Parts
from gitops_services.problems import ProblemError

_LONGEST_LOG = 1 << 20
RunId = Annotated[str, PathParameter(pattern="^[0-9a-f]{32}$", description="32 hex digits")]


class RunRoutes:
    """Routes below `/runs`."""

    def __init__(self, parts: Parts) -> None:
        """Serve from these parts."""
        self._parts = parts

    def add_to(self, router: APIRouter) -> None:
        """Register the routes."""
        router.add_api_route("/runs", self.latest, response_model=RunPage, summary="Latest runs")
        router.add_api_route("/runs/{run}", self.one, response_model=RunFull, summary="One run, with its log")

    def latest(
        self,
        target: Annotated[
            str | None, Query(max_length=400, description="Only runs of this target or source item")
        ] = None,
        limit: Limit = 20,
    ) -> RunPage:
        """The latest runs, newest first: those that go on, then those that ended."""
        store = self._parts.store
        if target is None:
            return RunPage(items=[run_brief(view) for view in store.latest_runs(limit=limit)])
        try:
            name = store.resolve(target)
        except UnknownTargetError as error:
            raise ProblemError(404, "unknown_target", str(error)) from None
        return RunPage(items=[run_brief(view) for view in store.runs(name, limit=limit)])

    def one(self, run: RunId) -> RunFull:
        """One run with its causes, times, counts, tool versions and log."""
        view = self._parts.store.run(run)
        if view is None:
            raise ProblemError(404, "unknown_run", f"unknown run '{run}' (only the latest runs of a target are kept)")
        return run_full(view, log_of(self._parts, view))


def log_of(parts: Parts, view: RunView) -> str:
    """Return the log of a run: what was recorded at its end, or what is written so far where it runs on this host."""
    return view.fields.get("log") or _written(parts.settings.layout.log(view.run))


def _written(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LONGEST_LOG))
            return file.read(_LONGEST_LOG).decode("utf-8", "replace")
    except OSError:
        return ""
