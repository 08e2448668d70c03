"""Tokens over a real Redis: shown once, kept as a hash, gone when revoked."""

import json

import pytest
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.store.tokens import Role, Tokens


@pytest.fixture
def tokens(redis_client: Redis) -> Tokens:
    return Tokens(redis_client)


def test_a_token_verifies_and_its_secret_is_not_kept(tokens: Tokens, redis_client: Redis) -> None:
    assert not tokens.exist()
    plain = tokens.create("ann", Role.OPERATOR)
    assert plain.startswith("gor_")
    found = tokens.verify(plain)
    assert found is not None
    assert (found.name, found.role) == ("ann", Role.OPERATOR)
    kept = str(redis_client.hgetall(keys.TOKENS))
    assert plain.rpartition("_")[2] not in kept
    assert plain[17:] not in kept
    assert tokens.exist()


def test_every_token_is_another(tokens: Tokens) -> None:
    made = {tokens.create(f"t{number}", Role.VIEWER) for number in range(20)}
    assert len(made) == 20
    assert [token.name for token in tokens.list()] == sorted(f"t{number}" for number in range(20))


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: t + "A", lambda t: t[:4] + "0" * 12 + t[16:], str.upper]
)
def test_a_changed_token_does_not_verify(tokens: Tokens, change) -> None:  # type: ignore[no-untyped-def]  # four lambdas
    plain = tokens.create("ann", Role.VIEWER)
    assert tokens.verify(change(plain)) is None


@pytest.mark.parametrize("plain", ["", "gor_", "x" * 10_000, "gor_\ud800", "é"])
def test_what_is_no_token_does_not_verify(tokens: Tokens, plain: str) -> None:
    assert tokens.verify(plain) is None


def test_a_name_is_taken_once_and_has_a_shape(tokens: Tokens) -> None:
    tokens.create("ann", Role.VIEWER)
    with pytest.raises(ValueError, match="already"):
        tokens.create("ann", Role.ADMIN)
    for name in ("", "a b", "-x", "x" * 64, "a\n"):
        with pytest.raises(ValueError, match="allowed"):
            tokens.create(name, Role.VIEWER)


def test_a_token_is_revoked_by_name_or_id(tokens: Tokens) -> None:
    one, two = tokens.create("one", Role.VIEWER), tokens.create("two", Role.VIEWER)
    assert tokens.revoke("one")
    assert tokens.revoke(tokens.list()[0].id)
    assert [tokens.verify(plain) for plain in (one, two)] == [None, None]
    assert not tokens.revoke("one")


@pytest.mark.parametrize("text", ["", "[]", "{", "null", json.dumps({"name": "x", "role": "root"}), "1"])
def test_what_someone_else_wrote_there_is_no_token_and_locks_the_door_all_the_same(
    tokens: Tokens, redis_client: Redis, text: str
) -> None:
    redis_client.hset(keys.TOKENS, "0" * 12, text)
    assert tokens.list() == []
    assert tokens.verify("gor_" + "0" * 12 + "_" + "A" * 43) is None
    assert tokens.exist()


def test_roles_have_names_and_an_order() -> None:
    assert [Role.parse(name) for name in ("viewer", "operator", "admin")] == sorted(Role)
    with pytest.raises(ValueError, match="must be one of: viewer, operator, admin"):
        Role.parse("root")
