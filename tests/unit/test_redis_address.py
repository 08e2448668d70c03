"""The forms of a Redis address."""

import pytest

from gitops_reconciler.redis_address import (
    BROKER_SCHEMES,
    STORE_SCHEMES,
    SentinelAddress,
    check_address,
    passwords_in,
    sentinel_address,
)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://user:p%40ss@host:7000/4",
        "redis://[::1]:6379/0",
        "rediss://host:6379/0?ssl_ca_certs=/etc/ca.pem",
        "unix:///run/redis.sock?db=3",
        "sentinel://one:26379,two/fleet/0",
    ],
)
def test_what_clients_can_use_is_taken(url: str) -> None:
    check_address(url, STORE_SCHEMES)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://host", "must begin with one of"),
        ("redis+socket:///run/redis.sock", "must begin with one of"),
        ("unix://", "names no socket"),
        ("redis://host:port/0", "no number from 1 to 65535"),
        ("redis://host:70000/0", "no number from 1 to 65535"),
        ("redis://:pass/word@host/0", "must be quoted"),
        ("redis://host/first", "no number of a database"),
        ("sentinel://one;sentinel://two", "must be sentinel://host:26379"),
        ("sentinel://one:26379", "must be sentinel://host:26379"),
        ("sentinel://one/fleet/x", "must be sentinel://host:26379"),
        ("sentinel://one:x/fleet", "no number from 1 to 65535"),
        ("sentinel://one,/fleet", "must be sentinel://host:26379"),
        ("sentinel://one/fleet?ssl_ca_certs=/ca.pem", "TLS is not supported with it"),
    ],
)
def test_what_no_client_could_use_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_address(url, STORE_SCHEMES)


def test_a_refusal_repeats_no_password() -> None:
    for url in ("redis://:s3cr3t-of/mine@host/0", "sentinel://:s3cr3t-of@one", "ftp://ann:s3cr3t-of@host"):
        with pytest.raises(ValueError, match=r"\w") as caught:
            check_address(url, STORE_SCHEMES)
        assert "s3cr3t-of" not in str(caught.value)


def test_a_broker_may_also_be_named_as_kombu_names_a_socket() -> None:
    check_address("redis+socket:///run/redis.sock", BROKER_SCHEMES)


def test_sentinels_have_a_service_and_logins_of_both() -> None:
    url = "sentinel://ann:p%40ss@one:7000,two/fleet/3?sentinel_password=other"
    assert sentinel_address(url) == SentinelAddress(
        sentinels=(("one", 7000), ("two", 26379)),
        service="fleet",
        database=3,
        username="ann",
        password="p@ss",
        sentinel_password="other",
    )


def test_all_passwords_of_an_address_are_found_in_both_spellings() -> None:
    url = "sentinel://ann:p%40ss@one/fleet?sentinel_password=o%2Fther"
    assert passwords_in(url) == ["p%40ss", "p@ss", "o%2Fther", "o/ther"]
