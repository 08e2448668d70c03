"""Receiver and API while Redis is away: everybody is told soon, and what was answered 202 is kept."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import httpx
import pytest

from gitops_reconciler.git.urls import repository_keys
from gitops_reconciler.work.base import ItemSpec
from tests.support.faces import SECRET, github_push, sign
from tests.support.processes import eventually
from tests.support.roles import RoleProcess
from tests.support.weather import WITHIN, Weather, bad_weather

FORGE_SECONDS = 10.0
"""How long a forge waits for an answer: whoever is not told by then was told nothing."""
LISTENING = re.compile(r"listening on (http://\S+:\d+)")


@dataclass
class Faces:
    """A receiver behind a proxy."""

    weather: Weather
    role: RoleProcess
    url: str

    def target(self, number: int) -> None:
        """Register a target with a repository of its own."""
        keys = repository_keys(repository(number))
        spec = ItemSpec(
            item=f"default/n{number}",
            kind="stdshell",
            pool="custom",
            repository=min(keys),
            refs=tuple(f"{key}#refs/heads/main" for key in keys),
        )
        self.weather.fleet.work.register(spec, first_due_in_ms=None)

    async def push(self, http: httpx.AsyncClient, number: int) -> httpx.Response:
        raw = json.dumps(github_push(url=repository(number))).encode()
        headers = {
            "content-type": "application/json",
            "x-github-event": "push",
            "x-hub-signature-256": sign(raw),
            "x-github-delivery": f"d{number}",
        }
        return await http.post("/webhooks/github", content=raw, headers=headers)

    def ask(self, calls: Callable[[httpx.AsyncClient], list[Awaitable[httpx.Response]]]) -> list[httpx.Response]:
        """Make calls all at once; answers what came back, each before a forge would have given up."""

        async def together() -> list[httpx.Response]:
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(base_url=self.url, timeout=FORGE_SECONDS, limits=limits) as http:
                return list(await asyncio.gather(*calls(http)))

        return asyncio.run(together())

    def crowd(self, first: int) -> list[httpx.Response]:
        """Many deliveries and some readers at once."""
        return self.ask(
            lambda http: [
                *(self.push(http, number) for number in range(first, first + 80)),
                *(http.get("/api/v1/targets") for _ in range(90)),  # more than twice as many as there are threads
            ]
        )

    def serves(self, number: int) -> bool:
        """Whether a delivery is taken and a reader served, within the bound."""
        self.target(number)

        def both() -> bool:
            answers = self.ask(lambda http: [self.push(http, number), http.get("/api/v1/targets")])
            return answers[0].status_code in {200, 202} and answers[1].status_code == 200

        return eventually(both, within=WITHIN) and self.requested(number) >= 1

    def requested(self, number: int) -> int:
        return self.weather.view(f"default/n{number}").requested


def repository(number: int) -> str:
    return f"https://forge.example/acme/n{number}.git"


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faces]:
    folder = tmp_path_factory.mktemp("faces")
    secrets = folder / "secrets"
    secrets.mkdir()
    (secrets / "github").write_bytes(SECRET)
    environ = {"GITOPS_PORT": "0", "GITOPS_WEBHOOK_SECRETS_DIR": str(secrets)}
    with bad_weather(folder, environ, through_proxy=True) as weather:
        role = weather.roles.start("gitops_services")
        assert eventually(lambda: LISTENING.search(role.text()) is not None, within=WITHIN), role.text()
        found = LISTENING.search(role.text())
        assert found is not None
        yield Faces(weather, role, found[1])
        assert role.process.poll() is None


@contextmanager
def held(weather: Weather) -> Iterator[None]:
    assert weather.proxy is not None
    weather.proxy.hold()
    try:
        yield
    finally:
        weather.proxy.let_pass()


@contextmanager
def frozen(weather: Weather) -> Iterator[None]:
    os.kill(weather.server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(weather.server.pid, signal.SIGCONT)


@contextmanager
def stopped(weather: Weather) -> Iterator[None]:
    weather.server.stop()
    try:
        yield
    finally:
        weather.server.start()


AWAY: dict[str, Callable[[Weather], AbstractContextManager[None]]] = {
    "black hole": held,
    "frozen": frozen,
    "stopped": stopped,
}


@pytest.mark.req("RM.1")
@pytest.mark.parametrize(("number", "away"), list(enumerate(AWAY)))
def test_while_redis_is_away_a_crowd_is_told_to_come_back_and_served_again_without_a_restart(
    faces: Faces, number: int, away: str
) -> None:
    first = 1000 * (number + 1)
    assert faces.serves(first)
    with AWAY[away](faces.weather):
        answers = faces.crowd(first + 1)
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.headers["retry-after"] for answer in answers} == {"5"}
    assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}
    assert {answer.json()["code"] for answer in answers} == {"store_unavailable"}
    assert faces.serves(first + 500)
    assert "Traceback" not in faces.role.text()


def test_half_open_connections_cost_no_delivery(faces: Faces) -> None:
    assert faces.weather.proxy is not None
    assert faces.serves(1)
    for number in range(2, 32):
        faces.target(number)
    assert faces.weather.proxy.strand() >= 2  # of deliveries and of readers
    answers = faces.ask(lambda http: [faces.push(http, number) for number in range(2, 32)])
    assert {answer.status_code for answer in answers} <= {200, 202}
    assert all(faces.requested(number) >= 1 for number in range(2, 32))


def test_what_was_answered_202_is_kept_when_redis_is_killed_in_the_middle_of_it(faces: Faces) -> None:
    numbers = range(100, 260)
    for number in numbers:
        faces.target(number)
    taken: list[int] = []
    refused: list[int] = []

    async def deliver() -> None:
        async with httpx.AsyncClient(base_url=faces.url, timeout=FORGE_SECONDS) as http:
            waiting = iter(numbers)

            async def one_forge() -> None:
                for number in waiting:
                    answer = await faces.push(http, number)
                    assert answer.status_code in {202, 503}, answer.text
                    (taken if answer.status_code == 202 else refused).append(number)
                    if len(taken) == 40 and not refused:
                        faces.weather.server.stop(signal.SIGKILL)
                    if len(refused) == 20:
                        await asyncio.to_thread(faces.weather.server.start)

            await asyncio.gather(*(one_forge() for _ in range(6)))

    asyncio.run(deliver())
    assert len(taken) > 40
    assert len(refused) >= 20
    assert [number for number in taken if faces.requested(number) != 1] == []
