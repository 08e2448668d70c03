"""The asking half of the work protocol on an asynchronous client, for the one face where the rate counts: webhooks.

The same scripts with the same arguments as `RedisWork`; claims and runs stay with that one. Asks that come in while
others are under way go out together, in one round trip: that costs less than half of a round trip each. However many
come in while Redis is away, each is refused within the same few seconds, and none of those refused is sent later on.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis.asyncio
from redis.exceptions import NoScriptError, ReadOnlyError

from gitops_reconciler import keys
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.redis_errors import trouble
from gitops_reconciler.work.asks import push_arguments, read_pushed, read_requested, request_arguments
from gitops_reconciler.work.base import Ask, Cause
from gitops_reconciler.work.redis import Waker, WorkOptions

_BATCH = 64
_ANSWER_SECONDS = 3.0
_WAKE_SECONDS = 1.0
_WAKINGS = 4


@dataclass(frozen=True, slots=True)
class _Call:
    script: Any
    arguments: list[bytes]
    answer: asyncio.Future[Any]


class AsyncRedisWork:
    """`request` and `push` over one asynchronous client (decode_responses=True). For one event loop."""

    def __init__(
        self, client: redis.asyncio.Redis, *, options: WorkOptions | None = None, waker: Waker | None = None
    ) -> None:
        """Use this client; `waker` sends messages when the broker is another database, in a thread."""
        self._client = client
        self._header = (options or WorkOptions()).header()
        self._waker = waker
        self._request = client.register_script(keys.script("request"))
        self._push = client.register_script(keys.script("push"))
        self._waiting: deque[_Call] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._wakings: set[asyncio.Task[None]] = set()

    async def request(self, items: Sequence[str], cause: Cause) -> list[Ask]:
        """Ask for a tick of each item."""
        if not items:
            return []
        return read_requested(items, await self._call(self._request, request_arguments(items, cause)))

    async def push(self, refs: Sequence[str], cause: Cause, *, delivery: str | None) -> list[Ask] | None:
        """Ask for all items that watch one of the refs; None when this delivery asked for them before."""
        return read_pushed(await self._call(self._push, push_arguments(refs, cause, delivery)))

    async def _call(self, script: Any, arguments: list[str]) -> Any:
        # Encoded here, where what can't be sent fails alone and not with all that goes out together.
        encoded = [argument.encode() for argument in arguments]
        call = _Call(script, encoded, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = json.loads(await call.answer)
        except TimeoutError as error:
            message = f"redis did not take the ask within {_ANSWER_SECONDS:g} s"
            raise StoreUnavailableError(message) from error
        await self._wake([(item, pool) for item, pool in answer["wakes"]])
        return answer["result"]

    async def _wake(self, wakes: list[tuple[str, str]]) -> None:
        """Send messages to a broker of its own; one that is away keeps nobody waiting, as sweeps make up for it."""
        if not wakes or self._waker is None or len(self._wakings) >= _WAKINGS:
            return
        waking = asyncio.create_task(asyncio.to_thread(self._waker, wakes))
        self._wakings.add(waking)
        waking.add_done_callback(self._wakings.discard)
        await asyncio.wait({waking}, timeout=_WAKE_SECONDS)

    async def _send(self) -> None:
        """Send what waits, batch after batch, until nothing does."""
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            calls = [call for call in taken if not call.answer.done()]  # the others were refused meanwhile
            try:
                answers = await self._answers(calls)
            except Exception as error:  # noqa: BLE001  # whoever waits must be answered, whatever went wrong
                for call in calls:
                    _settle(call, error)
            else:
                for call, answer in zip(calls, answers, strict=True):
                    _settle(call, answer)

    async def _answers(self, calls: Sequence[_Call]) -> list[Any]:
        """Return an answer or an exception for each; scripts that Redis has forgotten are loaded again."""
        if not calls:
            return []
        answers = await self._round_trip(calls)
        forgotten = [index for index, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if forgotten:
            for script in {calls[index].script.sha: calls[index].script for index in forgotten}.values():
                await self._client.script_load(script.script)
            again = await self._round_trip([calls[index] for index in forgotten])
            for index, answer in zip(forgotten, again, strict=True):
                answers[index] = answer
        if any(isinstance(answer, ReadOnlyError) for answer in answers):
            await self._client.connection_pool.disconnect()  # it is no master any more: look for the one that is
        return answers

    async def _round_trip(self, calls: Sequence[_Call]) -> list[Any]:
        pipe = self._client.pipeline(transaction=False)
        for call in calls:
            pipe.execute_command("EVALSHA", call.script.sha, "1", keys.PREFIX, self._header, *call.arguments)
        return list(await pipe.execute(raise_on_error=False))


def _settle(call: _Call, answer: Any) -> None:
    if call.answer.done():  # whoever asked has gone
        return
    if isinstance(answer, Exception):
        message = f"redis did not take the ask: {trouble(answer)}"
        failure = StoreUnavailableError(message)
        failure.__cause__ = answer
        call.answer.set_exception(failure)
    else:
        call.answer.set_result(answer)
