"""What the contracts of the work protocol are held against: a real server, and the fake that unit tests may use."""

from collections.abc import Iterator

import fakeredis
import pytest

from gitops_reconciler.redis_text import TextRedis, as_text


@pytest.fixture(params=["redis", "fakeredis"])
def client(request: pytest.FixtureRequest) -> Iterator[TextRedis]:
    if request.param == "redis":
        yield request.getfixturevalue("redis_client")
    else:
        yield as_text(fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True))
