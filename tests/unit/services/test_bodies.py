"""Bodies of strangers: bounded in size, in time and together."""

import asyncio
from collections.abc import Iterable

import pytest
from starlette.types import Message

from gitops_services.receiver.base import Headers
from gitops_services.receiver.bodies import Bodies, BodyError, BodyLimits, DisconnectedError

NONE = Headers([])
KIB = 1024


def limits(**changes: float) -> BodyLimits:
    fields = {"body_bytes": 256 * KIB, "held_bytes": 512 * KIB, "seconds": 10.0, **changes}
    return BodyLimits(**fields)  # type: ignore[arg-type]  # a table of fields


class Sender:
    """Sends chunks, then waits for ever unless the last one was marked as such."""

    def __init__(self, chunks: Iterable[bytes], *, ends: bool = True) -> None:
        self.chunks = list(chunks)
        self.ends = ends
        self.sent = 0

    async def __call__(self) -> Message:
        if not self.chunks:
            await asyncio.Event().wait()
        body = self.chunks.pop(0)
        self.sent += len(body)
        return {"type": "http.request", "body": body, "more_body": bool(self.chunks) or not self.ends}


async def take(bodies: Bodies, sender: Sender, headers: Headers = NONE) -> bytes:
    async with bodies.read(headers, sender) as body:
        return bytes(body)


def status_of(bodies: Bodies, sender: Sender, headers: Headers = NONE) -> int:
    with pytest.raises(BodyError) as caught:
        asyncio.run(take(bodies, sender, headers))
    return caught.value.status


def test_a_body_in_pieces_is_put_together() -> None:
    assert asyncio.run(take(Bodies(limits()), Sender([b"a", b"", b"bc"]))) == b"abc"


def test_reading_stops_at_the_first_piece_over_the_limit() -> None:
    sender = Sender([b"x" * 64 * KIB] * 100)
    assert status_of(Bodies(limits()), sender) == 413
    assert sender.sent <= 320 * KIB


def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    sender = Sender([b"x"])
    assert status_of(Bodies(limits()), sender, Headers([(b"content-length", b"1000000")])) == 413
    assert sender.sent == 0


def test_a_declared_length_that_lies_does_not_help() -> None:
    sender = Sender([b"x" * 64 * KIB] * 100)
    assert status_of(Bodies(limits()), sender, Headers([(b"content-length", b"10")])) == 413


@pytest.mark.parametrize("values", [[b"1", b"1"], [b"-1"], [b"1,1"], [b"0x1"], [b""], ["\u0661".encode()]])
def test_a_length_that_is_no_single_number_is_400(values: list[bytes]) -> None:
    headers = Headers([(b"content-length", value) for value in values])
    assert status_of(Bodies(limits()), Sender([b"x"]), headers) == 400


def test_a_sender_that_stops_is_answered_408() -> None:
    assert status_of(Bodies(limits(seconds=0.05)), Sender([b"x"], ends=False)) == 408


def test_a_sender_that_goes_away_is_told_nothing() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def read() -> None:
        async with Bodies(limits()).read(NONE, gone):
            raise AssertionError("there is no body")

    with pytest.raises(DisconnectedError):
        asyncio.run(read())


@pytest.mark.req("RM.1")
def test_many_slow_senders_keep_nobody_else_out() -> None:
    async def scene() -> bytes:
        bodies = Bodies(limits(held_bytes=64 * KIB))
        slow = [asyncio.create_task(take(bodies, Sender([b"x" * KIB], ends=False))) for _ in range(50)]
        await asyncio.sleep(0)
        try:
            return await take(bodies, Sender([b"push"]))
        finally:
            for task in slow:
                task.cancel()

    assert asyncio.run(scene()) == b"push"


def test_what_all_bodies_hold_together_is_bounded_and_given_back() -> None:
    async def scene() -> list[int]:
        bodies = Bodies(limits(held_bytes=200 * KIB))
        first = asyncio.create_task(take(bodies, Sender([b"x" * 200 * KIB], ends=False)))
        await asyncio.sleep(0)
        answers = []
        for size in (200, 60):  # the small one still has a place
            try:
                answers.append(len(await take(bodies, Sender([b"x" * size * KIB]))))
            except BodyError as error:
                answers.append(error.status)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        answers.append(len(await take(bodies, Sender([b"x" * 200 * KIB]))))
        return answers

    assert asyncio.run(scene()) == [503, 60 * KIB, 200 * KIB]


def test_more_bodies_at_once_than_allowed_are_503() -> None:
    async def scene() -> int:
        bodies = Bodies(limits(at_once=2))
        slow = [asyncio.create_task(take(bodies, Sender([b"x"], ends=False))) for _ in range(2)]
        await asyncio.sleep(0)
        try:
            await take(bodies, Sender([b"x"]))
        except BodyError as error:
            return error.status
        finally:
            for task in slow:
                task.cancel()
        return 200

    assert asyncio.run(scene()) == 503
