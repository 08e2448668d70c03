"""Who asks: a forge that delivers pushes until they are taken, and people at the API, the CLI and the library.

Every ask that was accepted goes into the ledger; what was refused, or got no answer, does not count.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

from redis import Redis

from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.work.base import Cause
from gitops_reconciler.work.redis import RedisWork
from tests.chaos.fleet import SECRET, Fleet
from tests.chaos.ledger import PUSHES, REQUESTS, Ledger, boot_ns, wall_ms
from tests.chaos.world import Target, World
from tests.support.roles import REPOSITORY

_ANSWER_SECONDS = 10.0
_PUSH_SECONDS, _ASK_SECONDS = 5.0, 0.8
_AGAIN_SECONDS = 0.4
_PATIENCE_NS = 300 * 1_000_000_000
_DOCUMENTS_EVERY = 8  # pushes
_CLI_EVERY = 25  # asks
_ACCEPTED = {200, 202}


@dataclass(slots=True)
class Load:
    """Asks all the time, until it is told to stop; then what was pushed is still delivered."""

    fleet: Fleet
    world: World
    ledger: Ledger
    rng: random.Random
    _is_over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16, thread_name_prefix="asks"))

    def start(self) -> None:
        """Begin."""
        for act, seconds in ((self._push_something, _PUSH_SECONDS), (self._ask_something, _ASK_SECONDS)):
            rng = random.Random(self.rng.random())
            thread = threading.Thread(target=self._again, args=(act, seconds, rng), name=act.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Ask for nothing new, and wait until what was pushed was delivered."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self._pool.shutdown(wait=True)

    def _again(self, act: Callable[[int, random.Random], None], seconds: float, rng: random.Random) -> None:
        number = 0
        while not self._is_over.wait(rng.uniform(0.5, 1.5) * seconds):
            number += 1
            act(number, rng)

    def _push_something(self, number: int, rng: random.Random) -> None:
        if number % _DOCUMENTS_EVERY == 0:
            targets = rng.sample(self.world.targets, min(5, len(self.world.targets)))
            self.world.push_documents(targets)
            url = self.world.documents.url
        else:
            stack = rng.randrange(len(self.world.stacks))
            targets, url = self.world.push_stack(stack), self.world.stacks[stack].url
        self.ledger.note(PUSHES, at_ns=boot_ns(), states={target.item: self.world.state(target) for target in targets})
        asked = [] if url == self.world.documents.url else targets
        self._pool.submit(self.deliver_until_taken, url, asked, rng.randrange(2))

    def deliver_until_taken(self, url: str, targets: list[Target], receiver: int) -> None:
        """Deliver a push under one id, to one receiver and then the other, until one of them took it."""
        pause, delivery, began, began_ms = threading.Event(), str(uuid4()), boot_ns(), wall_ms()
        while (answer := self.deliver(url, delivery, receiver)) is None or answer[0] not in _ACCEPTED:
            if boot_ns() - began > _PATIENCE_NS:
                return  # what was pushed is not there at the end, and the checker says so
            receiver = 1 - receiver
            pause.wait(_AGAIN_SECONDS)
        self._note(targets, "webhook", began, began_ms, answer)

    def deliver(self, url: str, delivery: str, receiver: int) -> tuple[int, dict[str, Any]] | None:
        """Deliver a push once, signed as GitHub does; None: there was no answer."""
        repository = {"clone_url": url, "full_name": "chaos/stack"}
        body = json.dumps(
            {"ref": "refs/heads/main", "before": "1" * 40, "after": "2" * 40, "repository": repository}
        ).encode()
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "X-GitHub-Event": "push",
            "X-GitHub-Delivery": delivery,
            "X-Hub-Signature-256": f"sha256={signature}",
        }
        return self._post(receiver, "/webhooks/github", body, headers)

    def _post(
        self, receiver: int, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]] | None:
        url = f"http://127.0.0.1:{self.fleet.ports[receiver]}{path}"
        request = Request(url, data=body, method="POST", headers={"Content-Type": "application/json", **headers})
        try:
            with urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, {}
        except (OSError, HTTPException, ValueError):
            return None

    def _note(
        self, targets: list[Target], way: str, sent: int, sent_ms: int, answer: tuple[int, dict[str, Any]]
    ) -> None:
        for target in targets:
            self.ledger.note(
                REQUESTS, target=target.item, way=way, sent_ns=sent, sent_ms=sent_ms, answered_ns=boot_ns(),
                status=answer[0], generation=answer[1].get("generation"), answer=answer[1].get("answer", ""),
            )  # fmt: skip

    def _ask_something(self, number: int, rng: random.Random) -> None:
        target = rng.choice(self.world.targets)
        if number % _CLI_EVERY == 0:
            self.ask_cli(target, rng.randrange(2))
        elif number % 2:
            self.ask_api(target, rng.randrange(2))
        else:
            self.ask_work([target])

    def ask_api(self, target: Target, receiver: int, way: str = "api") -> None:
        """Ask as a person with curl does."""
        sent, sent_ms = boot_ns(), wall_ms()
        answer = self._post(receiver, f"/api/v1/targets/{target.item}/tick", b"", {})
        if answer is not None and answer[0] in _ACCEPTED:
            self._note([target], way, sent, sent_ms, answer)

    def ask_cli(self, target: Target, receiver: int) -> None:
        """Ask as a person at a terminal does."""
        sent, sent_ms = boot_ns(), wall_ms()
        done = subprocess.run(
            [sys.executable, "-m", "gitops_reconciler.cli", "enqueue", target.item, "-o", "json"],
            env={**self.fleet.roles.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY),
                 "GITOPS_SERVER": f"http://127.0.0.1:{self.fleet.ports[receiver]}"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        if done.returncode == 0:
            with suppress(ValueError):
                self._note([target], "cli", sent, sent_ms, (202, json.loads(done.stdout)))

    def ask_work(self, targets: list[Target]) -> None:
        """Ask as a program does that uses the library; through the same network as the faces."""
        sent, sent_ms = boot_ns(), wall_ms()
        with (
            suppress(StoreUnavailableError),
            Redis.from_url(self.fleet.proxies["faces"].url, decode_responses=True, socket_timeout=5) as client,
        ):
            by_item = {target.item: target for target in targets}
            for ask in RedisWork(client).request(list(by_item), Cause(trigger=Trigger.MANUAL, actor="chaos")):
                answer = {"generation": ask.generation, "answer": ask.answer.value}
                self._note([by_item[ask.item]], "work", sent, sent_ms, (202, answer))

    def storm(self, rng: random.Random) -> list[str]:
        """Ask for much at once; answers what was done, in words."""
        if rng.random() < 0.5:
            stack = rng.randrange(len(self.world.stacks))
            url, targets = self.world.stacks[stack].url, self.world.of_repository(stack)
            for number in range(60):
                self._pool.submit(self._deliver_once, url, targets, number % 2)
            return [f"60 deliveries of stack {stack}"]
        targets = rng.sample(self.world.targets, min(30, len(self.world.targets)))
        for _ in range(5):
            self._pool.submit(self.ask_work, targets)
        return [f"5 x {len(targets)} asks"]

    def _deliver_once(self, url: str, targets: list[Target], receiver: int) -> None:
        sent, sent_ms = boot_ns(), wall_ms()
        answer = self.deliver(url, str(uuid4()), receiver)
        if answer is not None and answer[0] == 202:
            self._note(targets, "webhook", sent, sent_ms, answer)
