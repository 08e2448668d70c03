"""Errors as RFC 9457 problems: one shape for every answer that is none, with no trace of our insides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from gitops_reconciler.redis_errors import is_full

RETRY_AFTER_SECONDS = 5
MEDIA_TYPE = "application/problem+json"


class ProblemError(Exception):
    """An answer that is an error; raised by routes, rendered by the app."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        """`code` is stable, for programs; `message` is for people."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return it as an answer."""
        return problem(self.status, self.code, self.message, headers=self.headers)


def problem(
    status: int,
    code: str,
    message: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> Response:
    """Return a problem answer."""
    content = json.dumps(problem_body(status, code, message, errors=errors))
    headers = {"cache-control": "no-store", **(headers or {})}
    return Response(content, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def problem_body(status: int, code: str, message: str, *, errors: list[dict[str, str]] | None = None) -> dict[str, Any]:
    """Return the body of a problem answer."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": message,
        "code": code,
        "message": message,
    }
    if errors:
        body["errors"] = errors
    return body


def unavailable(error: Exception | None = None) -> ProblemError:
    """Return the problem for a store that does not answer, or takes no writes: nothing was lost, ask again.

    Of the error, which may name hosts, only its sort is told.
    """
    why = "redis is full and takes no writes" if is_full(error) else "redis does not answer"
    return ProblemError(
        503,
        "store_unavailable",
        f"{why}; nothing was changed, try again",
        headers={"retry-after": str(RETRY_AFTER_SECONDS)},
    )
