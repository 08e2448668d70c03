"""The few commands that need no server reach the fleet's store themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import SecretStr
from redis.exceptions import RedisError

from gitops_reconciler.cli.client import read_up_file
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.settings import Settings


@contextmanager
def reaching_store() -> Iterator[None]:
    """Turn what the Redis client raises into an error of ours."""
    try:
        yield
    except RedisError as error:
        said = trouble(error)
        message = said if "redis" in said else f"redis did not answer: {said}"
        raise StoreUnavailableError(message) from error


def with_store(settings: Settings) -> Settings:
    """Return settings that name a store: the one that is set, else that of the running `gitops up`.

    Raises:
        StoreUnavailableError: there is neither.

    """
    if settings.redis_url is not None:
        return settings
    if read_up_file(settings.layout.up_file) is None:
        message = f"no store: GITOPS_REDIS_URL is not set, and no `gitops up` runs on {settings.layout.root}"
        raise StoreUnavailableError(message)
    return settings.model_copy(update={"redis_url": SecretStr(f"unix://{settings.layout.redis_socket}")})
