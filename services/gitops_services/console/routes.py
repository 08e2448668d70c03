"""The console put together: pages, and the few files that they load."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from gitops_services.console.pages import ConsoleRoutes
from gitops_services.parts import Parts
from gitops_services.streams import Streams


class _Files(StaticFiles):
    """Script, style and icon: their address changes with their content, so that browsers may keep them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, with headers that let it be nothing else."""
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "public, max-age=604800"
        response.headers["x-content-type-options"] = "nosniff"
        response.headers["content-security-policy"] = "default-src 'none'; style-src 'unsafe-inline'"
        return response


def build_console(parts: Parts, streams: Streams) -> APIRouter:
    """Return the pages over these parts."""
    router = APIRouter(include_in_schema=False)
    ConsoleRoutes(parts, streams).add_to(router)
    return router


def build_static() -> StaticFiles:
    """Return the files that the pages load."""
    return _Files(directory=str(files("gitops_services.console") / "static"))
