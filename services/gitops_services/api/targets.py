"""Targets: lists, one, and asking for a tick."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from gitops_reconciler.errors import UnknownTargetError
from gitops_reconciler.outcomes import TargetStatus, Trigger
from gitops_reconciler.store.listings import Query as ListQuery
from gitops_reconciler.store.listings import Sort
from gitops_reconciler.store.tokens import Role
from gitops_reconciler.work.base import Cause, Mark
from gitops_services.access import caller_of, require
from gitops_services.api.explaining import Explanation, explain
from gitops_services.api.fleet import Why, situation_of
from gitops_services.api.views import RunBrief, TargetView, run_brief, targets_of
from gitops_services.parts import Parts
from gitops_services.problems import ProblemError

Limit = Annotated[int, Query(ge=1, le=500, description="How many at most")]
_Words = Annotated[list[str] | None, Query(description="Repeated: any of them")]


class TargetPage(BaseModel):
    """One page of targets."""

    model_config = ConfigDict(frozen=True)

    items: list[TargetView]
    next: str | None = Field(description="`after` of the next page; null: this was the last")
    total: int = Field(description="How many match on all pages")
    counts: dict[str, int] = Field(description="How many targets of the whole fleet are in each status")


class RunPage(BaseModel):
    """The latest runs, newest first."""

    model_config = ConfigDict(frozen=True)

    items: list[RunBrief]
    next: None = Field(default=None, description="The latest runs are one page: older ones are not kept")


class Asked(BaseModel):
    """What became of an ask."""

    model_config = ConfigDict(frozen=True)

    target: str
    generation: int = Field(
        description="Reached by the target's `observed` once a run that started after this ask has ended"
    )
    answer: str = Field(description="queued, coalesced, deferred, suspended, stale or destroyed")


class TargetRoutes:
    """Routes below `/targets`."""

    def __init__(self, parts: Parts) -> None:
        """Serve from these parts."""
        self._parts = parts

    def add_to(self, router: APIRouter) -> None:
        """Register the routes; those with a longer path come first, since a name may hold a slash."""
        add = router.add_api_route
        add("/targets", self.list_targets, response_model=TargetPage, summary="List targets")
        add(
            "/targets/{name:path}/tick",
            self.tick,
            methods=["POST"],
            status_code=202,
            response_model=Asked,
            summary="Ask for a tick",
        )
        add(
            "/targets/{name:path}/explain",
            self.explain,
            response_model=Explanation,
            summary="Why a target is as it is, and what happens next",
        )
        for what, summary in ((self.suspend, "Let a target not run"), (self.resume, "Let a target run again")):
            path = "/targets/{name:path}/" + what.__name__
            add(path, what, methods=["POST"], response_model=TargetView, summary=summary)
        add("/targets/{name:path}/runs", self.runs, response_model=RunPage, summary="Latest runs of a target")
        add("/targets/{name:path}", self.one, response_model=TargetView, summary="One target")

    def list_targets(
        self,
        *,
        status: Annotated[list[TargetStatus] | None, Query(description="Repeated: any of them")] = None,
        kind: _Words = None,
        pool: _Words = None,
        label: Annotated[list[str] | None, Query(description="`name=value` or `name`; repeated: all of them")] = None,
        q: Annotated[str, Query(max_length=200, description="Part of the name")] = "",
        sort: Annotated[Sort, Query(description="By name, or the most urgent status first")] = Sort.NAME,
        limit: Limit = 100,
        after: Annotated[str, Query(max_length=1000, description="`next` of the page before")] = "",
    ) -> TargetPage:
        """Targets, a page at a time; filtered and sorted by the server."""
        query = ListQuery(
            status=tuple(one.value for one in status or ()),
            kind=tuple(kind or ()),
            pool=tuple(pool or ()),
            labels=tuple(_label(text) for text in label or ()),
            q=q,
            sort=sort,
            limit=limit,
            after=after,
        )
        try:
            page = self._parts.listing.page(query)
        except ValueError as error:
            raise ProblemError(400, "invalid_cursor", str(error)) from None
        return TargetPage(
            items=targets_of(self._parts.store, self._parts.fleet, page.names),
            next=page.next,
            total=page.total,
            counts=dict(page.counts),
        )

    def one(self, name: str) -> TargetView:
        """One target by its full name, or by its short one where only one source has it."""
        found = targets_of(self._parts.store, self._parts.fleet, [self._resolve(name)])
        if not found:
            raise ProblemError(404, "unknown_target", f"unknown target '{name}'")
        return found[0]

    def runs(self, name: str, limit: Limit = 20) -> RunPage:
        """The latest runs of a target, newest first, without their logs."""
        found = self._parts.store.runs(self._resolve(name), limit=limit)
        return RunPage(items=[run_brief(view) for view in found])

    def tick(self, name: str, request: Request) -> Any:
        """Ask for one attempt to converge the target. Answers at once; the run follows.

        Asks during a run cause exactly one more run. `answer` says `suspended` or `stale` where the ask is remembered,
        but nothing runs for now.
        """
        target = self._resolve(name)
        actor = caller_of(request).name
        (ask,) = self._parts.work.request([target], Cause(trigger=Trigger.MANUAL, actor=actor))
        if ask.generation == 0:  # it was forgotten meanwhile
            raise ProblemError(404, "unknown_target", f"unknown target '{name}'")
        return Asked(target=ask.item, generation=ask.generation, answer=ask.answer.value)

    def explain(self, name: str) -> Explanation:
        """In plain sentences: what it waits for, what goes on, how it stands, what comes next."""
        view = self._parts.store.item(self._resolve(name))
        if view is None:
            raise ProblemError(404, "unknown_target", f"unknown target '{name}'")
        return explain(view, situation_of(self._parts, view))

    def suspend(self, name: str, request: Request, why: Annotated[Why | None, Body()] = None) -> TargetView:
        """Let a target not run until it is resumed; asks are remembered, a run under way ends by itself."""
        return self._mark(name, Mark.SUSPEND, request, why)

    def resume(self, name: str, request: Request, why: Annotated[Why | None, Body()] = None) -> TargetView:
        """Let a target run again, and ask for it."""
        return self._mark(name, Mark.RESUME, request, why)

    def _mark(self, name: str, mark: Mark, request: Request, why: Why | None) -> TargetView:
        target, caller = self._resolve(name), caller_of(request)
        require(caller, Role.OPERATOR)
        self._parts.work.mark(target, mark, actor=caller.name, reason=why.reason if why else "")
        return self.one(target)

    def _resolve(self, name: str) -> str:
        try:
            return self._parts.store.resolve(name)
        except UnknownTargetError as error:
            raise ProblemError(404, "unknown_target", str(error)) from None


def _label(text: str) -> tuple[str, str | None]:
    name, given, value = text.partition("=")
    return name, value if given else None
