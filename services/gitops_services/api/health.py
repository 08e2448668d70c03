"""Whether this process lives, and whether the fleet behind it works."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from redis.exceptions import RedisError
from starlette.responses import JSONResponse, Response

from gitops_reconciler import keys
from gitops_services.parts import Parts

_SCRIPTS = ("request", "push", "list")


class Health(BaseModel):
    """This process answers."""

    model_config = ConfigDict(frozen=True)

    status: str = "ok"


class Readiness(BaseModel):
    """Whether asks are taken and runs follow."""

    model_config = ConfigDict(frozen=True)

    status: str = Field(description="ok, or unavailable (503): asks can't be written down")
    redis: str = Field(description="ok, or what is wrong")
    scripts: str = Field(description="ok, or what is wrong")
    last_sweep_seconds: float | None = Field(
        description="How long ago the schedule was looked at; null: never. Grows while no beat runs"
    )
    paused: str | None = Field(description="Why nothing is claimed in the whole fleet; null in normal times")


class HealthRoutes:
    """The routes `/healthz` and `/readyz`."""

    def __init__(self, parts: Parts) -> None:
        """Look at these parts."""
        self._parts = parts

    def add_to(self, router: APIRouter) -> None:
        """Register the routes."""
        router.add_api_route("/healthz", self.healthz, response_model=Health, summary="This process answers")
        router.add_api_route(
            "/readyz",
            self.readyz,
            response_model=Readiness,
            summary="Asks are taken, and runs follow",
            responses={503: {"model": Readiness, "description": "Asks can't be written down"}},
        )

    async def healthz(self) -> Health:
        """Touches nothing: a Redis that is away is no reason to restart this process."""
        return Health()

    def readyz(self) -> Response:
        """Redis answers and knows the scripts; how long ago the last sweep was; whether the fleet is paused."""
        checks: dict[str, Any] = {"redis": "ok", "scripts": "ok", "last_sweep_seconds": None, "paused": None}
        try:
            swept = self._parts.client.hget(keys.SWEPT, "at")
            checks["last_sweep_seconds"] = round(time.time() - float(swept) / 1000, 1) if swept else None
            pause = self._parts.fleet.pause()
            checks["paused"] = None if pause is None else pause.reason
        except (RedisError, OSError) as error:
            checks["redis"] = checks["scripts"] = type(error).__name__
        else:
            checks["scripts"] = self._scripts()
        is_well = checks["redis"] == checks["scripts"] == "ok"
        ready = Readiness(status="ok" if is_well else "unavailable", **checks)
        return JSONResponse(
            ready.model_dump(), status_code=200 if is_well else 503, headers={"cache-control": "no-store"}
        )

    def _scripts(self) -> str:
        try:
            for name in _SCRIPTS:
                self._parts.client.script_load(keys.script(name))
        except (RedisError, OSError) as error:
            return type(error).__name__
        return "ok"
