"""The fleet as a whole through the API and the console: paused, resumed, pools that nobody serves, explanations."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.store.tokens import Role
from gitops_reconciler.work.base import Cause
from tests.support.faces import Faces, running_faces


@pytest.fixture(scope="module")
def application(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faces]:
    with running_faces(redis_url, tmp_path_factory.mktemp("faces")) as made:
        yield made


@pytest.fixture
def faces(application: Faces, redis_client: Redis) -> Faces:
    application.http.cookies.clear()
    return application


def get(faces: Faces, path: str) -> Any:
    response = faces.http.get(f"/api/v1/{path}")
    assert response.status_code == 200, response.text
    return response.json()


def post(faces: Faces, path: str, body: object = None) -> Any:
    response = faces.http.post(f"/api/v1/{path}", json=body or {})
    assert response.status_code == 200, response.text
    return response.json()


def page(faces: Faces, path: str = "/") -> str:
    return str(faces.http.get(path, headers={"accept": "text/html"}).text)


def let_pool_die(faces: Faces) -> None:
    """Let an ask wait in a pool whose only worker serves another one."""
    faces.target("default/net", pool="terraform")
    faces.work.request(["default/net"], Cause(trigger=Trigger.MANUAL, actor="ann"))
    seconds, micros = faces.redis.time()
    sign = {"pools": ["ansible"], "slots": 4, "busy": 1, "at": seconds * 1000 + micros // 1000}
    faces.redis.hset(keys.WORKERS, "w@h", json.dumps(sign))
    for _ in range(2):
        faces.work.look_at_pools(dead_after_ms=0, silent_after_ms=20_000)


class TestPause:
    def test_a_fleet_in_normal_times_has_nothing_to_tell(self, faces: Faces) -> None:
        assert get(faces, "gitops/status") == {"paused": None, "dead_pools": [], "workers": [], "swept_at": None}

    def test_it_is_paused_with_a_reason_and_resumed(self, faces: Faces) -> None:
        assert post(faces, "gitops/pause", {"reason": "migration"})["changed"]
        paused = get(faces, "gitops/status")["paused"]
        assert (paused["reason"], paused["by"]) == ("migration", "local")
        assert paused["since"]
        assert faces.http.get("/readyz").json()["paused"] == "migration"
        again = post(faces, "gitops/pause", {"reason": "another"})
        assert (again["changed"], again["paused"]["reason"]) == (False, "migration")
        assert post(faces, "gitops/resume") == {"changed": True, "paused": None}
        assert post(faces, "gitops/resume") == {"changed": False, "paused": None}

    def test_viewers_may_look_and_not_pause_and_operators_may(self, faces: Faces) -> None:
        viewer, operator = faces.token(Role.VIEWER, "eve"), faces.token(Role.OPERATOR, "bob")
        for path in ("gitops/pause", "gitops/resume", "targets/default/web/suspend"):
            assert faces.http.post(f"/api/v1/{path}", json={}, headers=viewer).status_code == 403
        assert faces.http.get("/api/v1/gitops/status", headers=viewer).status_code == 200
        assert faces.http.post("/api/v1/gitops/pause", json={}, headers=operator).json()["paused"]["by"] == "bob"

    @pytest.mark.parametrize("path", ["/", "/targets/default/web", "/targets/default/unknown"])
    def test_every_page_says_so_first(self, faces: Faces, path: str) -> None:
        faces.target("default/web")
        assert "is paused" not in page(faces, path)
        faces.work.pause("<b>emptied</b>", actor="h1", advice="look & <see>", epoch="a" * 32)
        html = page(faces, path)
        assert "The fleet is paused:</strong> &lt;b&gt;emptied&lt;/b&gt;" in html
        assert "Look &amp; &lt;see&gt;." in html
        assert html.index("is paused") < html.index("<h1")

    def test_nobody_is_told_before_signing_in(self, faces: Faces) -> None:
        faces.work.pause("migration", actor="ann")
        faces.token()
        assert "migration" not in page(faces, "/login")


class TestSuspension:
    def test_a_target_is_suspended_and_resumed_with_who_and_why(self, faces: Faces) -> None:
        faces.target("default/web")
        said = post(faces, "targets/web/suspend", {"reason": "holidays"})
        assert (said["status"], said["suspended_by"], said["suspended_why"]) == ("suspended", "local", "holidays")
        resumed = post(faces, "targets/default/web/resume")
        assert (resumed["status"], resumed["requested"]) == ("pending", 1)

    def test_an_unknown_target_and_a_wrong_body_are_refused(self, faces: Faces) -> None:
        faces.target("default/web")
        assert faces.http.post("/api/v1/targets/wbe/suspend", json={}).status_code == 404
        assert faces.http.post("/api/v1/targets/web/suspend", json={"why": "x"}).status_code == 422


class TestDeadPools:
    def test_they_are_told_by_status_target_list_page_and_explanation(self, faces: Faces) -> None:
        let_pool_die(faces)
        status = get(faces, "gitops/status")
        (dead,) = status["dead_pools"]
        assert (dead["pool"], dead["waiting"], dead["oldest"]) == ("terraform", 1, "default/net")
        assert status["workers"] == [{"name": "w@h", "pools": ["ansible"], "slots": 4, "busy": 1}]
        assert get(faces, "targets/net")["waiting_for"] == "no live worker serves pool 'terraform'"
        html = page(faces)
        assert "Nobody serves pool terraform:</strong> 1 ask waits there" in html
        assert "waiting: no live worker serves pool &#39;terraform&#39;" in html
        assert "(PoolDead)" in get(faces, "targets/net/explain")["summary"]

    def test_targets_of_other_pools_wait_for_nothing(self, faces: Faces) -> None:
        let_pool_die(faces)
        faces.target("default/web")
        faces.work.request(["default/web"], Cause(trigger=Trigger.MANUAL, actor="ann"))
        assert get(faces, "targets/web")["waiting_for"] == ""


class TestExplain:
    def test_a_run_that_goes_on_is_explained_with_its_lease(self, faces: Faces) -> None:
        faces.target("default/web")
        faces.work.request(["default/web"], Cause(trigger=Trigger.MANUAL, actor="ann"))
        run = faces.claimed("default/web").run
        said = get(faces, "targets/web/explain")
        assert said["name"] == "default/web"
        assert said["summary"].startswith("It has been running for ")
        assert f"on worker-1 (run {run}), asked for by manual ann." in said["summary"]
        assert any(fact.startswith("Its lease ends in ") for fact in said["facts"])

    def test_after_a_gap_it_says_how_long_the_holder_has(self, faces: Faces) -> None:
        faces.target("default/web")
        faces.work.request(["default/web"], Cause(trigger=Trigger.MANUAL, actor="ann"))
        faces.claimed("default/web")
        faces.redis.delete(keys.lease("default/web"))
        seconds, _ = faces.redis.time()
        faces.redis.set(keys.GAP_UNTIL, (seconds + 30) * 1000)
        assert any("Redis was away: the run has another" in fact for fact in get(faces, "targets/web/explain")["facts"])

    def test_a_target_that_is_well_says_what_comes_next(self, faces: Faces) -> None:
        faces.target("default/web")
        faces.ran("default/web")
        said = get(faces, "targets/web/explain")
        assert said["summary"].startswith("Revision aaaaaaaaaaaa (Fix it) was applied and confirmed")
        assert "The schedule asks for it in 10 min (every 10 min)." in said["facts"]

    def test_an_unknown_name_is_answered_with_close_ones(self, faces: Faces) -> None:
        faces.target("default/web")
        response = faces.http.get("/api/v1/targets/wbe/explain")
        assert response.status_code == 404
        assert "did you mean: web" in response.json()["message"]
