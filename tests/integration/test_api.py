"""The API over a real Redis: what it tells, what it takes, and whom it serves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.store.tokens import Role, Tokens
from gitops_reconciler.work.base import Mark
from tests.support.faces import REPOSITORY, SHA, Faces, github_push, running_faces
from tests.support.redis_server import running_redis


@pytest.fixture(scope="module")
def application(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faces]:
    with running_faces(redis_url, tmp_path_factory.mktemp("faces")) as made:
        yield made


@pytest.fixture
def faces(application: Faces, redis_client: Redis) -> Faces:
    application.http.cookies.clear()
    return application


def names(faces: Faces, query: str = "") -> list[str]:
    response = faces.http.get(f"/api/v1/targets{query}")
    assert response.status_code == 200, response.text
    return [target["name"] for target in response.json()["items"]]


class TestTargets:
    def test_a_fleet_without_targets_is_an_empty_list(self, faces: Faces) -> None:
        assert faces.http.get("/api/v1/targets").json() == {"items": [], "next": None, "total": 0, "counts": {}}

    def test_pages_follow_each_other_without_gap_or_overlap(self, faces: Faces) -> None:
        wanted = [faces.target(f"default/t{number:02}") for number in range(25)]
        for sort in ("name", "status"):
            seen: list[str] = []
            after: str | None = ""
            for _ in range(3):
                page = faces.http.get(f"/api/v1/targets?limit=10&sort={sort}&after={after}").json()
                seen += [target["name"] for target in page["items"]]
                after = page["next"]
            assert (seen, after) == (wanted, None)

    def test_the_server_filters_by_status_kind_pool_label_and_part_of_a_name(self, faces: Faces) -> None:
        faces.target("default/web", labels={"env": "prod", "team": "x"})
        faces.target("default/db", kind="terraform", pool="terraform", labels={"env": "dev"})
        faces.target("edge/pi", kind="pi", pool="edge")
        faces.ran("default/db", "failed", "failed")
        faces.work.mark("edge/pi", Mark.SUSPEND, actor="ann")
        assert names(faces, "?status=failed") == ["default/db"]
        assert names(faces, "?status=failed&status=suspended") == ["default/db", "edge/pi"]
        assert names(faces, "?kind=terraform&kind=pi") == ["default/db", "edge/pi"]
        assert names(faces, "?pool=custom") == ["default/web"]
        assert names(faces, "?label=env=prod") == ["default/web"]
        assert names(faces, "?label=env") == ["default/db", "default/web"]
        assert names(faces, "?label=env=prod&label=team=y") == []
        assert names(faces, "?q=DB") == ["default/db"]
        assert names(faces, "?q=default") == []
        assert names(faces, "?q=edge/") == ["edge/pi"]

    def test_the_most_urgent_status_comes_first_when_asked_for(self, faces: Faces) -> None:
        for name in ("a-ready", "b-failed", "c-pending"):
            faces.target(f"default/{name}")
        faces.ran("default/a-ready")
        faces.ran("default/b-failed", "failed", "failed")
        assert names(faces, "?sort=status") == ["default/b-failed", "default/c-pending", "default/a-ready"]
        page = faces.http.get("/api/v1/targets?status=ready&limit=1").json()
        assert page["counts"] == {"ready": 1, "failed": 1, "pending": 1}

    @pytest.mark.parametrize("after", ["x", "W10", "eyJhIjoxfQ", "bnVsbA", "WyJzdGF0dXMiLDAsImEiXQ", "é"])
    def test_a_cursor_of_another_list_is_a_problem(self, faces: Faces, after: str) -> None:
        response = faces.http.get(f"/api/v1/targets?after={after}")
        assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")

    @pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "status=fine", "sort=age"])
    def test_wrong_questions_are_problems_that_name_the_parameter(self, faces: Faces, query: str) -> None:
        response = faces.http.get(f"/api/v1/targets?{query}")
        assert response.status_code == 422
        assert response.headers["content-type"] == "application/problem+json"
        assert query.partition("=")[0] in response.json()["message"]

    @pytest.mark.req("RM.6")
    def test_one_target_tells_revision_result_and_why_it_ran(self, faces: Faces) -> None:
        faces.target("default/web")
        run = faces.ran("default/web", counts=json.dumps({"added": 1, "changed": 2, "removed": 0}), message="all well")
        target = faces.http.get("/api/v1/targets/default/web").json()
        assert (target["status"], target["revision"], target["applied_revision"]) == ("ready", SHA, SHA)
        assert (target["requested"], target["observed"]) == (1, 1)
        last = target["last_run"]
        assert (last["run"], last["state"], last["message"]) == (run, "changed", "all well")
        assert last["causes"] == [{"trigger": "webhook", "actor": "github:octocat"}]
        assert last["counts"] == {"added": 1, "changed": 2, "removed": 0}
        assert last["seconds"] >= 0

    def test_a_short_name_will_do_where_it_is_unambiguous(self, faces: Faces) -> None:
        faces.target("edge/pi")
        assert faces.http.get("/api/v1/targets/pi").json()["name"] == "edge/pi"
        faces.target("other/pi")
        response = faces.http.get("/api/v1/targets/pi")
        assert response.status_code == 404
        assert "edge/pi, other/pi" in response.json()["message"]

    def test_an_unknown_target_is_a_problem_that_offers_close_names(self, faces: Faces) -> None:
        faces.target("default/web-server")
        response = faces.http.get("/api/v1/targets/web-servre")
        assert (response.status_code, response.json()["code"]) == (404, "unknown_target")
        assert "web-server" in response.json()["message"]

    def test_credentials_in_an_address_are_never_shown(self, faces: Faces) -> None:
        faces.target(url="https://ann:hunter22@forge.example/acme/infra")
        assert "hunter22" not in faces.http.get("/api/v1/targets/web").text

    def test_malformed_records_do_not_keep_the_others_from_being_listed(self, faces: Faces) -> None:
        faces.target("default/a", labels={})
        faces.target("default/b")
        faces.ran("default/b", counts="not json", tools="[]")
        faces.redis.hset(keys.item("default/a"), "labels", "[1]")
        assert names(faces) == ["default/a", "default/b"]


class TestTick:
    @pytest.mark.req("RM.3")
    def test_a_tick_is_asked_for_and_its_generation_can_be_waited_for(self, faces: Faces) -> None:
        faces.target("default/web")
        response = faces.http.post("/api/v1/targets/web/tick")
        assert response.status_code == 202
        assert response.json() == {"target": "default/web", "generation": 1, "answer": "queued"}
        assert faces.http.post("/api/v1/targets/default/web/tick").json()["answer"] == "coalesced"
        claim = faces.claimed("default/web")
        assert [cause.trigger for cause in claim.causes] == ["manual"]
        assert claim.causes[0].actor == "local"
        assert faces.http.post("/api/v1/targets/web/tick").json() == {
            "target": "default/web",
            "generation": 3,
            "answer": "deferred",
        }

    def test_a_suspended_target_remembers_the_ask_and_says_so(self, faces: Faces) -> None:
        faces.target()
        faces.work.mark("default/web", Mark.SUSPEND, actor="ann")
        assert faces.http.post("/api/v1/targets/web/tick").json()["answer"] == "suspended"

    def test_an_unknown_target_can_not_be_ticked(self, faces: Faces) -> None:
        response = faces.http.post("/api/v1/targets/nope/tick")
        assert (response.status_code, response.json()["code"]) == (404, "unknown_target")

    def test_a_source_can_not_be_ticked_as_a_target(self, faces: Faces) -> None:
        faces.target("source:default", kind="source", pool="source")
        faces.target("default/web")
        assert names(faces) == ["default/web"]


class TestRuns:
    def test_a_run_is_shown_with_causes_times_counts_tools_and_log(self, faces: Faces) -> None:
        faces.target()
        run = faces.ran("default/web", log="one\ntwo", tools=json.dumps({"terraform": "1.9.5"}), exit="0")
        shown = faces.http.get(f"/api/v1/runs/{run}").json()
        assert (shown["log"], shown["tools"], shown["state"]) == ("one\ntwo", {"terraform": "1.9.5"}, "changed")
        assert shown["started_at"] <= shown["ended_at"]
        assert shown["record"]["exit"] == "0"

    def test_a_run_that_goes_on_shows_the_log_that_its_host_has_written_so_far(self, faces: Faces) -> None:
        faces.target()
        faces.work.request(["default/web"], _cause())
        claim = faces.claimed("default/web")
        log = faces.settings.layout.log(claim.run)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("so far\n")
        shown = faces.http.get(f"/api/v1/runs/{claim.run}").json()
        assert (shown["state"], shown["log"], shown["seconds"]) == ("running", "so far\n", None)

    def test_the_latest_runs_of_all_begin_with_those_that_go_on(self, faces: Faces) -> None:
        for name in ("default/a", "default/b", "default/c"):
            faces.target(name)
        ended = [faces.ran("default/a"), faces.ran("default/b", "failed", "failed"), faces.ran("default/a")]
        faces.work.request(["default/c"], _cause())
        going = faces.claimed("default/c").run
        latest = faces.http.get("/api/v1/runs").json()["items"]
        assert [run["run"] for run in latest] == [going, *reversed(ended)]
        assert [run["run"] for run in faces.http.get("/api/v1/runs?target=a").json()["items"]] == [ended[2], ended[0]]
        assert len(faces.http.get("/api/v1/targets/a/runs?limit=1").json()["items"]) == 1
        assert "log" not in latest[0]

    @pytest.mark.parametrize(("run", "status"), [("0" * 32, 404), ("x", 422), ("0" * 33, 422)])
    def test_unknown_runs_are_problems(self, faces: Faces, run: str, status: int) -> None:
        assert faces.http.get(f"/api/v1/runs/{run}").status_code == status


def _cause() -> Any:
    from gitops_reconciler.outcomes import Trigger
    from gitops_reconciler.work.base import Cause

    return Cause(trigger=Trigger.MANUAL, actor="ann")


class TestSources:
    def test_a_source_is_registered_asked_for_shown_and_forgotten(self, faces: Faces) -> None:
        body = {"name": "infra", "repo": "https://forge.example/acme/infra", "branch": "prod", "interval": "5m"}
        made = faces.http.post("/api/v1/sources", json=body)
        assert made.status_code == 201, made.text
        assert (made.json()["branch"], made.json()["interval"]) == ("prod", 300)
        assert faces.requested("source:infra") == 1
        assert faces.github(github_push("refs/heads/prod"), x_github_delivery="s").json()["sources"] == 1
        faces.ran("source:infra", "failed", "failed", reason="AuthFailed", message="denied")
        (shown,) = faces.http.get("/api/v1/sources").json()["items"]
        assert (shown["status"], shown["reason"], shown["message"]) == ("failed", "AuthFailed", "denied")
        assert faces.http.delete("/api/v1/sources/infra").status_code == 204
        assert faces.http.get("/api/v1/sources").json()["items"] == []
        assert faces.http.delete("/api/v1/sources/infra").status_code == 404

    @pytest.mark.parametrize(
        "change",
        [{"repo": "ext::sh -c id"}, {"repo": "/etc"}, {"name": "A b"}, {"path": "../x"}, {"branch": "-x"}, {"huh": 1}],
        ids=repr,
    )
    def test_a_source_that_can_not_be_used_is_refused_and_nothing_is_kept(
        self, faces: Faces, change: dict[str, Any]
    ) -> None:
        body = {"name": "infra", "repo": "https://forge.example/acme/infra", **change}
        response = faces.http.post("/api/v1/sources", json=body)
        assert response.status_code == 422
        assert response.headers["content-type"] == "application/problem+json"
        assert faces.store.sources() == {}

    @pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, b"null", b"\xff"])
    def test_a_body_that_is_no_json_object_is_a_problem(self, faces: Faces, raw: bytes) -> None:
        response = faces.http.post("/api/v1/sources", content=raw, headers={"content-type": "application/json"})
        assert response.status_code in {400, 422}
        assert response.json()["code"] == "invalid_request"

    def test_a_body_over_the_limit_is_413(self, faces: Faces) -> None:
        response = faces.http.post(
            "/api/v1/sources", content=b"x" * 300_000, headers={"content-type": "application/json"}
        )
        assert (response.status_code, response.json()["code"]) == (413, "too_large")


class TestWhoIsServedWithoutAnyToken:
    def test_this_machine_is(self, faces: Faces) -> None:
        assert faces.http.get("/api/v1/targets").status_code == 200

    def test_another_machine_only_reaches_webhooks_and_healthz(
        self, redis_client: Redis, redis_url: str, tmp_path: Path
    ) -> None:
        with running_faces(redis_url, tmp_path, peer="192.0.2.7") as faces:
            faces.target()
            assert faces.github(github_push()).status_code == 202
            assert faces.http.get("/healthz").status_code == 200
            assert faces.http.get("/api/v1/healthz").status_code == 200
            for path in (
                "/",
                "/login",
                "/live",
                "/static/console.css",
                "/api/v1/targets",
                "/readyz",
                "/api/v1/openapi.json",
            ):
                assert faces.http.get(path).status_code == 403, path
            assert faces.http.post("/api/v1/targets/web/tick").status_code == 403

    @pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
    def test_every_address_of_this_machine_is_this_machine(self, redis_url: str, tmp_path: Path, peer: str) -> None:
        with running_faces(redis_url, tmp_path, peer=peer) as faces:
            assert faces.http.get("/api/v1/targets").status_code == 200

    @pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
    def test_who_comes_through_a_proxy_is_not_this_machine(self, faces: Faces, header: str) -> None:
        assert faces.http.get("/api/v1/targets", headers={header: "127.0.0.1"}).status_code == 403

    @pytest.mark.parametrize(
        "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""]
    )
    def test_a_name_that_was_bound_to_this_machine_is_refused(self, faces: Faces, host: str) -> None:
        assert faces.http.get("/api/v1/targets", headers={"host": host}).status_code == 403

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8420", "127.0.0.1:1", "[::1]:8420"])
    def test_the_names_of_this_machine_are_served(self, faces: Faces, host: str) -> None:
        assert faces.http.get("/api/v1/targets", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ],
        ids=repr,
    )
    def test_a_page_of_another_site_can_not_ask_for_ticks(self, faces: Faces, headers: dict[str, str]) -> None:
        faces.target()
        response = faces.http.post("/api/v1/targets/web/tick", headers=headers)
        assert (response.status_code, response.json()["code"]) == (403, "cross_site")
        assert faces.requested("default/web") == 0


class TestTokens:
    def test_once_there_is_a_token_every_call_needs_one(self, faces: Faces) -> None:
        header = faces.token()
        for path in ("/api/v1/targets", "/api/v1/openapi.json", "/api/v1/runs", "/readyz", "/live", "/nothing"):
            response = faces.http.get(path)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, 'Bearer realm="gitops"'), path
        assert faces.http.get("/api/v1/targets", headers=header).status_code == 200
        assert faces.http.get("/healthz").status_code == 200

    @pytest.mark.parametrize(
        ("role", "tick", "source"), [(Role.VIEWER, 403, 403), (Role.OPERATOR, 202, 403), (Role.ADMIN, 202, 201)]
    )
    def test_a_role_may_do_what_it_is_for(self, faces: Faces, role: Role, tick: int, source: int) -> None:
        faces.target()
        header = faces.token(role)
        body = {"name": "infra", "repo": "https://forge.example/acme/infra"}
        assert faces.http.get("/api/v1/targets", headers=header).status_code == 200
        assert faces.http.post("/api/v1/targets/web/tick", headers=header).status_code == tick
        assert faces.http.post("/api/v1/sources", json=body, headers=header).status_code == source
        deleted = faces.http.delete("/api/v1/sources/infra", headers=header).status_code
        assert deleted == (204 if role is Role.ADMIN else 403)

    def test_who_asked_is_the_name_of_the_token(self, faces: Faces) -> None:
        faces.target()
        faces.http.post("/api/v1/targets/web/tick", headers=faces.token(name="deploy-bot"))
        assert faces.claimed("default/web").causes[0].actor == "deploy-bot"

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "Bearer",
            "Bearer ",
            "Bearer x",
            "Basic YTpi",
            "Bearer gor_",
            "Bearer gor_" + "0" * 12 + "_" + "A" * 43,
            "é",
        ],
    )
    def test_anything_but_a_token_is_401(self, faces: Faces, value: str) -> None:
        faces.token()
        response = faces.http.get("/api/v1/targets", headers={b"authorization": value.encode("latin-1")})
        assert response.status_code == 401

    def test_two_tokens_in_one_request_are_none(self, faces: Faces) -> None:
        header = faces.token()["authorization"]
        pairs = [("authorization", header), ("authorization", header)]
        assert faces.http.get("/api/v1/targets", headers=pairs).status_code == 401

    def test_a_revoked_token_is_worth_nothing_at_once(self, faces: Faces) -> None:
        faces.token(name="bob")
        header = faces.token(name="ann")
        assert Tokens(faces.redis).revoke("ann")
        assert faces.http.get("/api/v1/targets", headers=header).status_code == 401

    def test_with_a_token_other_machines_names_and_proxies_are_served(
        self, redis_client: Redis, redis_url: str, tmp_path: Path
    ) -> None:
        with running_faces(redis_url, tmp_path, peer="192.0.2.7") as faces:
            header = {**faces.token(), "host": "fleet.example", "x-forwarded-for": "198.51.100.1"}
            assert faces.http.get("/api/v1/targets", headers=header).status_code == 200


class TestProbesAndDescription:
    def test_readyz_tells_redis_scripts_and_the_last_sweep(self, faces: Faces) -> None:
        assert faces.http.get("/readyz").json()["last_sweep_seconds"] is None
        faces.work.sweep(limit=10, rewake_after_ms=1000, ttl_ms=1000)
        ready = faces.http.get("/api/v1/readyz").json()
        assert (ready["status"], ready["redis"], ready["scripts"]) == ("ok", "ok", "ok")
        assert ready["last_sweep_seconds"] < 60

    def test_without_redis_healthz_is_well_and_the_rest_says_503(self, tmp_path: Path) -> None:
        with running_redis() as server, running_faces(server.url, tmp_path) as faces:
            assert faces.http.get("/readyz").status_code == 200
            server.stop()
            assert faces.http.get("/healthz").status_code == 200
            for path in ("/readyz", "/api/v1/targets", "/api/v1/events"):
                response = faces.http.get(path)
                assert (response.status_code, response.headers["retry-after"]) == (503, "5"), path
                assert response.json()["code"] == "store_unavailable"

    def test_the_api_describes_itself_and_loads_nothing_from_elsewhere(self, faces: Faces) -> None:
        described = faces.http.get("/api/v1/openapi.json").json()
        for path, operations in described["paths"].items():
            assert path.startswith("/api/v1/")
            for operation in operations.values():
                assert operation["summary"], path
                assert operation["description"], path
        assert faces.http.get("/docs").status_code == 404
        assert faces.http.get("/redoc").status_code == 404

    def test_what_does_not_exist_is_a_problem(self, faces: Faces) -> None:
        response = faces.http.get("/api/v1/nothing")
        assert response.status_code == 404
        assert set(response.json()) == {"type", "title", "status", "detail", "code", "message"}
        assert faces.http.put("/api/v1/targets").json()["code"] == "method_not_allowed"

    def test_events_want_an_id_of_their_stream(self, faces: Faces) -> None:
        for headers in ({"last-event-id": "x"}, {"last-event-id": "1-2-3"}):
            assert faces.http.get("/api/v1/events", headers=headers).status_code == 400
        assert faces.http.get("/api/v1/events?after=%24").json()["code"] == "invalid_event_id"

    def test_repositories_are_compared_as_the_receiver_does(self, faces: Faces) -> None:
        faces.target(url="git@forge.example:acme/infra.git")
        assert faces.github(github_push(url=REPOSITORY)).status_code == 202
