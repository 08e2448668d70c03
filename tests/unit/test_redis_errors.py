"""What Redis answers when it can't, in words."""

import pytest
from redis import exceptions

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.redis_errors import is_final, is_full, trouble

FULL = "command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:1."


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (exceptions.OutOfMemoryError(FULL), "redis is full"),
        (exceptions.ResponseError(FULL), "redis is full"),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), "a read-only replica"),
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "still loading its data"),
        (exceptions.NoPermissionError("no permissions to run 'x'"), "does not let this user"),
        (exceptions.AuthenticationError("invalid username-password pair"), "refuses the login"),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), "can't write to its disk"),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."), "too few replicas"),
        (exceptions.InvalidResponse("Protocol Error: b'HTTP/1.1 400'"), "no redis"),
        (exceptions.TimeoutError("Timeout reading from socket"), "does not answer in time"),
        (
            exceptions.ConnectionError("Error -2 connecting to x:1. Name or service not known."),
            "the host of redis is not known here",
        ),
        (
            exceptions.ConnectionError("Error 1. [SSL: CERTIFICATE_VERIFY_FAILED] self-signed"),
            "not signed by a CA that is trusted",
        ),
        (exceptions.ConnectionError("Connection refused."), "Connection refused."),
        (exceptions.ConnectionError(), "ConnectionError"),
    ],
)
def test_each_trouble_has_its_words_in_one_line(error: Exception, words: str) -> None:
    assert words in trouble(error)
    assert "\n" not in trouble(error)


def test_long_and_broken_lines_become_one_short_line() -> None:
    told = trouble(exceptions.ConnectionError("first\nsecond " + "x" * 10_000))
    assert told.startswith("first second")
    assert len(told) <= 300


def test_full_memory_is_found_behind_the_error_that_is_told() -> None:
    told = StoreUnavailableError("redis did not take 'request'")
    told.__cause__ = exceptions.ResponseError(FULL)
    assert is_full(told)
    assert not is_full(StoreUnavailableError("redis did not answer"))
    assert not is_full(None)


def test_waiting_helps_against_a_server_that_is_away_and_against_no_wrong_login() -> None:
    assert not is_final(exceptions.ConnectionError("Connection refused."))
    assert not is_final(exceptions.BusyLoadingError("Redis is loading the dataset in memory"))
    assert is_final(exceptions.AuthenticationError("invalid username-password pair"))
    assert is_final(exceptions.ResponseError("NOAUTH Authentication required."))
    assert is_final(exceptions.InvalidResponse("Protocol Error: b'HTTP'"))
