"""`python -m gitops_services` as a process: where it listens, whom it lets wait, how it ends, what it streams."""

import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from redis import Redis

from gitops_reconciler.outcomes import NextAsk, Trigger
from gitops_reconciler.store.tokens import Role, Tokens
from gitops_reconciler.work.base import Cause, Claim, Completion, ItemSpec
from gitops_reconciler.work.redis import RedisWork
from gitops_services.connections import CarefulProtocol
from tests.support.processes import eventually
from tests.support.roles import RoleProcess, Roles, running_roles

LISTENING = re.compile(r"listening on (http://\S+:\d+)")


@pytest.fixture
def roles(redis_client: Redis, redis_url: str, tmp_path: Path) -> Iterator[Roles]:
    with running_roles(
        tmp_path / "run",
        GITOPS_REDIS_URL=redis_url,
        GITOPS_PORT="0",
        GITOPS_WEBHOOK_SECRETS_DIR=str(tmp_path / "secrets"),
        GITOPS_WEBHOOK_BODY_LIMIT_MIB="1",
    ) as made:
        yield made


def url_of(role: RoleProcess) -> str:
    """Where it listens, once it says so."""
    assert eventually(lambda: LISTENING.search(role.text()) is not None, within=30), role.text()
    found = LISTENING.search(role.text())
    assert found is not None
    return found[1]


@pytest.fixture
def url(roles: Roles) -> str:
    return url_of(roles.start("gitops_services"))


def messages(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    """(id, event, data) of each message of a stream."""
    known: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            known[name] = value
        elif "data" in known:
            yield known.get("id", ""), known["event"], json.loads(known["data"])
            known = {}


def register(client: Redis, *names: str) -> None:
    for name in names:
        spec = ItemSpec(item=name, kind="stdshell", pool="custom", repository="", schedule={"interval": 600})
        RedisWork(client).register(spec, first_due_in_ms=60_000)


def run_of(client: Redis, item: str) -> None:
    """Let an item have a run."""
    work = RedisWork(client)
    work.request([item], Cause(trigger=Trigger.MANUAL, actor="ann"))
    claim = work.claim(item, "0" * 31 + "1", ttl_ms=60_000, holder="here")
    assert isinstance(claim, Claim)
    record = {"state": "changed", "reason": "Applied", "message": "done", "revision": "a" * 40}
    completion = Completion(record=record, status="ready", next_ask=NextAsk.INTERVAL, due_in_ms=1000, applied=True)
    assert work.complete(item, claim.token, claim.run, completion)


class TestWhereItListens:
    def test_it_says_its_address_once_and_nothing_about_requests(self, roles: Roles) -> None:
        role = roles.start("gitops_services")
        base = url_of(role)
        response = httpx.get(f"{base}/healthz")
        assert response.json() == {"status": "ok"}
        assert "server" not in response.headers
        assert role.end() == 0
        assert role.text().count("http://") == 1
        assert len(role.text().splitlines()) == 1, role.text()

    def test_beyond_this_machine_it_wants_a_token_or_a_webhook_secret(self, roles: Roles, tmp_path: Path) -> None:
        refused = roles.start("gitops_services", environ={"GITOPS_HOST": "0.0.0.0"})
        assert refused.process.wait(30) == 2
        assert "neither a token nor a webhook secret" in refused.text()
        (tmp_path / "secrets").mkdir()
        (tmp_path / "secrets" / "gitlab").write_bytes(b"secret\n")
        assert url_of(roles.start("gitops_services", environ={"GITOPS_HOST": "0.0.0.0"})).startswith("http://0.0.0.0:")

    def test_a_token_lets_it_listen_everywhere(self, roles: Roles, redis_client: Redis) -> None:
        Tokens(redis_client).create("ann", Role.VIEWER)
        base = url_of(roles.start("gitops_services", environ={"GITOPS_HOST": "0.0.0.0"}))
        assert httpx.get(f"{base}/api/v1/targets").status_code == 401

    def test_a_wrong_setting_is_one_clear_line(self, roles: Roles) -> None:
        role = roles.start("gitops_services", environ={"GITOPS_PORT": "lots"})
        assert role.process.wait(30) == 2
        assert role.text().startswith("gitops-services: GITOPS_PORT")
        assert len(role.text().splitlines()) == 1


class TestHowItEnds:
    def test_sigterm_ends_it_soon_although_streams_are_open(self, roles: Roles) -> None:
        role = roles.start("gitops_services")
        base = url_of(role)
        with (
            httpx.stream("GET", f"{base}/api/v1/events", timeout=30) as events,
            httpx.stream("GET", f"{base}/live", timeout=30) as live,
        ):
            assert next(events.iter_lines()).startswith("retry")
            assert next(live.iter_lines()).startswith("retry")
            began = time.monotonic()
            role.ask_to_end(signal.SIGTERM)
            assert role.process.wait(20) == 0
            assert time.monotonic() - began < 8
        assert "Traceback" not in role.text()


class TestStreams:
    def test_events_come_as_they_happen_and_from_where_a_client_left_off(self, url: str, redis_client: Redis) -> None:
        register(redis_client, "default/a", "default/b")
        run_of(redis_client, "default/a")
        seen: list[tuple[str, str]] = []
        with httpx.stream("GET", f"{url}/api/v1/events?after=0", timeout=20) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            stream = messages(response.iter_lines())
            for _ in range(2):
                event_id, _, data = next(stream)
                seen.append((event_id, data["event"]))
            assert [event for _, event in seen] == ["changed", "ended"]
            run_of(redis_client, "default/b")
            _, _, data = next(stream)
            assert (data["target"], data["event"], data["revision"]) == ("default/b", "changed", "a" * 40)
        resumed = {"last-event-id": seen[0][0]}
        with httpx.stream("GET", f"{url}/api/v1/events", headers=resumed, timeout=20) as response:
            assert next(messages(response.iter_lines()))[0] == seen[1][0]
        query = "after=0&target=default/b"
        with httpx.stream("GET", f"{url}/api/v1/events?{query}", timeout=20) as response:
            assert next(messages(response.iter_lines()))[2]["target"] == "default/b"

    def test_an_open_page_gets_what_changed_and_no_more(self, url: str, redis_client: Redis) -> None:
        register(redis_client, "default/a", "default/b")
        with httpx.stream("GET", f"{url}/live", timeout=20) as response:
            stream = messages(response.iter_lines())
            _, event, first = next(stream)
            assert event == "patch"
            assert set(first["rows"]) == {"row-default/a", "row-default/b"} == set(first["order"])
            run_of(redis_client, "default/a")
            _, _, patch = next(stream)
            assert set(patch["rows"]) == {"row-default/a"}
            assert patch["order"] == ["row-default/b", "row-default/a"]
            assert set(patch["parts"]) <= {"summary"}
            register(redis_client, "default/c")
            _, _, patch = next(stream)
            assert set(patch["rows"]) == {"row-default/c"}

    def test_an_open_page_of_one_target_follows_its_run(self, url: str, redis_client: Redis) -> None:
        register(redis_client, "default/a")
        with httpx.stream("GET", f"{url}/live?target=default/a", timeout=20) as response:
            stream = messages(response.iter_lines())
            assert "It never ran" in next(stream)[2]["parts"]["runs"]
            run_of(redis_client, "default/a")
            assert "changed" in next(stream)[2]["parts"]["runs"]


def _send(url: str, *parts: bytes, pause: float = 0.0, wait: float = 10.0) -> bytes:
    """Send raw bytes; answers everything that comes back until the other side closes."""
    host, port = url.removeprefix("http://").rsplit(":", 1)
    with closing(socket.create_connection((host, int(port)), timeout=wait)) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                if pause:
                    time.sleep(pause)
        except OSError:
            pass  # it was closed on us, perhaps with an answer
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except OSError:
            pass
        return answer


class TestStrangersOnTheLine:
    HEAD = b"POST /webhooks/github HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    @pytest.fixture
    def hooked(self, roles: Roles, tmp_path: Path) -> str:
        (tmp_path / "secrets").mkdir()
        (tmp_path / "secrets" / "github").write_bytes(b"secret\n")
        return url_of(roles.start("gitops_services"))

    def test_an_endless_chunked_body_is_413_and_not_kept(self, hooked: str) -> None:
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        answer = _send(hooked, self.HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 40)
        assert answer.startswith(b"HTTP/1.1 413")

    def test_a_length_over_the_limit_is_413_before_any_body(self, hooked: str) -> None:
        answer = _send(hooked, self.HEAD + b"Content-Length: 27262976\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answer.lower()

    @pytest.mark.parametrize(
        "head", [b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"Content-Length: x\r\n\r\n", b"\x00: \r\n\r\n"]
    )
    def test_a_malformed_head_is_400(self, hooked: str, head: bytes) -> None:
        assert _send(hooked, self.HEAD + head).startswith(b"HTTP/1.1 400")

    def test_a_head_without_end_is_cut_off(self, hooked: str) -> None:
        lines = [b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(200)]
        assert _send(hooked, self.HEAD, *lines) == b""
        assert httpx.get(f"{hooked}/healthz").status_code == 200

    def test_a_slow_head_is_cut_off_and_a_slow_reader_of_two_requests_is_not(self) -> None:
        class Hasty(CarefulProtocol):
            head_seconds = 0.4

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        config = uvicorn.Config(app, port=0, http=Hasty, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            assert eventually(lambda: server.started)
            port = server.servers[0].sockets[0].getsockname()[1]
            began = time.monotonic()
            assert _send(f"http://127.0.0.1:{port}", b"GET / HT") == b""
            assert _send(f"http://127.0.0.1:{port}") == b""
            assert time.monotonic() - began < 4
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
                assert [client.get("/").status_code for _ in range(2)] == [204, 204]
        finally:
            server.should_exit = True
            thread.join(10)
