"""Sources: which repositories declare targets; registered here, never in a tree."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict

from gitops_reconciler.errors import SpecError
from gitops_reconciler.models import NAME_PATTERN
from gitops_reconciler.sources import SourceRegistration, register_source, remove_source
from gitops_reconciler.store.tokens import Role
from gitops_services.access import caller_of, require
from gitops_services.api.views import SourceView, sources_of
from gitops_services.parts import Parts
from gitops_services.problems import ProblemError

SourceName = Annotated[str, Path(pattern=NAME_PATTERN)]


class SourceList(BaseModel):
    """All sources."""

    model_config = ConfigDict(frozen=True)

    items: list[SourceView]
    next: None = None


class SourceRoutes:
    """Routes below `/sources`."""

    def __init__(self, parts: Parts) -> None:
        """Serve from these parts."""
        self._parts = parts

    def add_to(self, router: APIRouter) -> None:
        """Register the routes."""
        add = router.add_api_route
        add("/sources", self.all, response_model=SourceList, summary="List sources")
        add(
            "/sources",
            self.put,
            methods=["POST"],
            status_code=201,
            response_model=SourceView,
            summary="Register a source",
        )
        add("/sources/{name}", self.one, response_model=SourceView, summary="One source")
        add("/sources/{name}", self.remove, methods=["DELETE"], status_code=204, summary="Forget a source")

    def all(self) -> SourceList:
        """All sources with their last sync."""
        return SourceList(items=sources_of(self._parts.store))

    def one(self, name: SourceName) -> SourceView:
        """One source with its last sync."""
        found = [source for source in sources_of(self._parts.store) if source.name == name]
        if not found:
            raise ProblemError(404, "unknown_source", f"unknown source '{name}'")
        return found[0]

    def put(self, registration: SourceRegistration, request: Request) -> SourceView:
        """Register a source, or change one; its sync is asked for at once."""
        require(caller_of(request), Role.ADMIN)
        try:
            register_source(self._parts.store, self._parts.work, registration, self._parts.settings)
        except SpecError as error:
            raise ProblemError(422, "invalid_source", str(error)) from None
        return self.one(registration.name)

    def remove(self, name: SourceName, request: Request) -> None:
        """Forget a source. Its targets go on with what was declared last."""
        require(caller_of(request), Role.ADMIN)
        if not remove_source(self._parts.store, self._parts.work, name):
            raise ProblemError(404, "unknown_source", f"unknown source '{name}'")
