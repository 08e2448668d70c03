"""Which servers may hold a fleet."""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError

from gitops_reconciler.errors import SettingsError
from gitops_reconciler.redis_text import TextRedis, as_text
from gitops_reconciler.store.fitness import check_server


class Server:
    """Answers INFO and nothing else."""

    def __init__(self, error: Exception | None = None, **said: object) -> None:
        self._error = error
        self._said = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "maxmemory": 0, **said}

    def info(self, _section: str) -> dict[str, object]:
        if self._error is not None:
            raise self._error
        return self._said


def client(server: Server) -> TextRedis:
    return as_text(server)  # type: ignore[arg-type]  # as much of a client as is asked


def test_of_a_good_server_nothing_is_said() -> None:
    assert check_server(client(Server())) == []
    assert check_server(client(Server(redis_version="6.2.0", maxmemory=10**9))) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_may_evict_is_refused_once_its_memory_is_limited(policy: str) -> None:
    with pytest.raises(SettingsError, match=f"maxmemory-policy {policy}.*set maxmemory-policy noeviction"):
        check_server(client(Server(maxmemory_policy=policy, maxmemory=10**9)))
    (warning,) = check_server(client(Server(maxmemory_policy=policy)))
    assert policy in warning


@pytest.mark.parametrize("version", ["5.0.14", "6.0.16", "6.1.9", "2.8"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(SettingsError, match=rf"redis is {version}, 6\.2 or later is needed"):
        check_server(client(Server(redis_version=version)))


def test_a_server_that_is_away_is_waited_for() -> None:
    (warning,) = check_server(client(Server(RedisConnectionError("Connection refused."))))
    assert warning == "Connection refused.; trying on"


def test_a_user_who_may_not_ask_is_told_what_is_not_checked() -> None:
    (warning,) = check_server(client(Server(NoPermissionError("this user has no permissions to run 'info'"))))
    assert "may not INFO" in warning
