"""The API's routes, under one version."""

from __future__ import annotations

from fastapi import APIRouter

from gitops_services.api.events import EventRoutes
from gitops_services.api.fleet import FleetRoutes
from gitops_services.api.health import HealthRoutes
from gitops_services.api.runs import RunRoutes
from gitops_services.api.sources import SourceRoutes
from gitops_services.api.targets import TargetRoutes
from gitops_services.parts import Parts
from gitops_services.streams import Streams

PREFIX = "/api/v1"


def build_api(parts: Parts, streams: Streams) -> APIRouter:
    """Return the API over these parts."""
    router = APIRouter(prefix=PREFIX)
    for routes in (
        TargetRoutes(parts),
        RunRoutes(parts),
        SourceRoutes(parts),
        EventRoutes(parts, streams),
        FleetRoutes(parts),
        HealthRoutes(parts),
    ):
        routes.add_to(router)
    return router


def build_probes(parts: Parts) -> APIRouter:
    """Return the probes where machines look for them, outside the versioned API."""
    router = APIRouter(include_in_schema=False)
    HealthRoutes(parts).add_to(router)
    return router
