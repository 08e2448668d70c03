"""The console: what its pages show, that nothing in them can run, and signing in and out."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis import Redis

from gitops_reconciler.store.tokens import Role, Tokens
from gitops_reconciler.work.base import Mark
from tests.support.faces import SHA, Faces, running_faces
from tests.support.redis_server import running_redis

ATTACK = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def application(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faces]:
    with running_faces(redis_url, tmp_path_factory.mktemp("faces")) as made:
        yield made


@pytest.fixture
def faces(application: Faces, redis_client: Redis) -> Faces:
    application.http.cookies.clear()
    return application


def page(faces: Faces, path: str = "/") -> str:
    response: httpx.Response = faces.http.get(path, headers={"accept": "text/html"})
    assert response.status_code == 200, response.text
    return response.text


def rows(html: str) -> list[str]:
    return re.findall(r'<tr id="row-([^"]+)"', html)


class TestFleet:
    def test_an_empty_fleet_says_what_to_do(self, faces: Faces) -> None:
        html = page(faces)
        assert "gitops source add" in html
        assert "No source is registered" in html

    def test_what_failed_comes_first_with_revision_result_reason_and_who_asked(self, faces: Faces) -> None:
        faces.target("default/a-well")
        faces.target("default/z-broken")
        faces.ran("default/a-well", subject="Add a record")
        faces.ran("default/z-broken", "failed", "failed", reason="ApplyFailed", message="no such\nimage")
        html = page(faces)
        assert rows(html) == ["default/z-broken", "default/a-well"]
        for text in (SHA[:8], f'title="{SHA} Add a record"', "ApplyFailed: no such", "webhook", "github:octocat"):
            assert text in html
        assert rows(page(faces, "/?status=ready")) == ["default/a-well"]
        assert rows(page(faces, "/?q=broken&sort=name")) == ["default/z-broken"]

    def test_a_large_fleet_is_shown_a_page_at_a_time(self, faces: Faces) -> None:
        for number in range(230):
            faces.target(f"default/t{number:03}")
        seen: list[str] = []
        html, pages = page(faces), 1
        seen += rows(html)
        while following := re.search(r'href="(/\?[^"]*)" rel="next"', html):
            html, pages = page(faces, following[1].replace("&amp;", "&")), pages + 1
            seen += rows(html)
        assert (len(seen), len(set(seen)), pages) == (230, 230, 3)

    def test_a_cursor_of_another_time_leads_to_the_first_page(self, faces: Faces) -> None:
        response = faces.http.get("/?after=nonsense")
        assert (response.status_code, response.headers["location"]) == (303, "/")

    def test_sources_show_their_last_sync_and_its_error(self, faces: Faces) -> None:
        body = {"name": "infra", "repo": "https://forge.example/acme/infra"}
        faces.http.post("/api/v1/sources", json=body)
        faces.ran("source:infra", "failed", "failed", reason="AuthFailed", message="the forge refused our credentials")
        html = page(faces)
        assert "AuthFailed: the forge refused our credentials" in html
        assert "Source infra" in html, "trouble with a source is told at the top"
        assert rows(html) == []

    def test_a_paused_fleet_and_a_missing_beat_are_said(self, faces: Faces) -> None:
        assert "No beat has looked at the schedule yet" in page(faces)
        faces.work.sweep(limit=1, rewake_after_ms=1000, ttl_ms=1000)
        faces.work.pause("the store was emptied", actor="ann")
        html = page(faces)
        assert "No beat" not in html
        assert "The fleet is paused by ann:</strong> the store was emptied" in html

    def test_a_suspended_target_says_by_whom_and_why(self, faces: Faces) -> None:
        faces.target()
        faces.work.mark("default/web", Mark.SUSPEND, actor="ann", reason="migration")
        assert "suspended by ann: migration" in page(faces)


class TestTarget:
    def test_a_target_shows_its_runs_and_the_log_of_the_latest_as_plain_text(self, faces: Faces) -> None:
        faces.target(labels={"env": "prod"})
        faces.ran("default/web", log="old log")
        faces.ran("default/web", log="\x1b[1m\x1b[32mgreen\x1b[0m\x07 & <b>bold</b>")
        html = page(faces, "/targets/default/web")
        assert "green &amp; &lt;b&gt;bold&lt;/b&gt;</pre>" in html
        assert "old log" not in html
        assert "env=prod" in html
        assert html.count('data-label="Result"') == 2

    def test_a_short_name_leads_to_the_full_one_and_an_unknown_one_is_404(self, faces: Faces) -> None:
        faces.target()
        assert faces.http.get("/targets/web").headers["location"] == "/targets/default/web"
        response = faces.http.get("/targets/wep")
        assert response.status_code == 404
        assert "did you mean" in response.text


class TestNothingRuns:
    def test_texts_of_strangers_are_escaped_wherever_they_are_shown(self, faces: Faces) -> None:
        faces.target(labels={"x": ATTACK}, facts={"source": "default", "path": ATTACK, "url": ATTACK, "ref": ATTACK})
        faces.ran("default/web", "failed", "failed", subject=ATTACK, message=ATTACK, reason=ATTACK, log=ATTACK)
        for path in ("/", "/targets/default/web", f"/?q={ATTACK}", f"/targets/{ATTACK}"):
            html = faces.http.get(path).text
            assert "<script>alert" not in html, path
            assert "<img src=x" not in html, path

    @pytest.mark.parametrize("path", ["/", "/targets/default/web", "/login", "/targets/none"])
    def test_pages_forbid_scripts_and_styles_that_are_not_files_of_ours(self, faces: Faces, path: str) -> None:
        faces.target()
        response = faces.http.get(path)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        html = response.text
        assert not re.search(r"<script(?![^>]*\ssrc=\"/static/)", html)
        assert not re.search(r"\son[a-z]+=|\sstyle=|<style|javascript:|https?://[^<\"]*\.(js|css)", html)
        for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', html):
            assert faces.http.get(file).status_code == 200, file

    def test_files_outside_the_folder_are_not_served(self, faces: Faces) -> None:
        for path in ("/static/../pages.py", "/static/..%2fpages.py", "/static/%2e%2e/pages.py", "/static/"):
            assert faces.http.get(path).status_code == 404, path


def sign_in(faces: Faces, plain: str, **changes: str) -> httpx.Response:
    form = faces.http.get("/login").text
    csrf = re.search(r'name="csrf" value="([^"]+)"', form)
    assert csrf is not None
    response: httpx.Response = faces.http.post("/login", data={"csrf": csrf[1], "token": plain, **changes})
    return response


class TestSigningIn:
    def test_with_a_token_around_a_person_is_sent_to_the_form_and_programs_are_not(self, faces: Faces) -> None:
        faces.token()
        response = faces.http.get("/", headers={"accept": "text/html"})
        assert (response.status_code, response.headers["location"]) == (303, "/login")
        assert faces.http.get("/api/v1/targets", headers={"accept": "text/html"}).status_code == 401
        assert faces.http.get("/static/console.css").status_code == 200

    def test_a_token_becomes_a_session_that_scripts_can_not_read_and_other_sites_can_not_send(
        self, faces: Faces
    ) -> None:
        plain = Tokens(faces.redis).create("ann", Role.VIEWER)
        response = sign_in(faces, plain)
        assert (response.status_code, response.headers["location"]) == (303, "/")
        cookie = response.headers["set-cookie"]
        for part in ("gitops_session=", "HttpOnly", "SameSite=strict", "Path=/"):
            assert part in cookie
        assert plain[17:] not in cookie
        html = page(faces)
        assert "ann · viewer" in html
        assert faces.http.get("/api/v1/targets").status_code == 200

    def test_behind_https_the_cookies_are_for_https_alone(self, faces: Faces) -> None:
        faces.token()
        assert "Secure" in faces.http.get("/login", headers={"x-forwarded-proto": "https"}).headers["set-cookie"]

    def test_a_wrong_token_is_refused(self, faces: Faces) -> None:
        faces.token()
        response = sign_in(faces, "gor_" + "0" * 12 + "_" + "A" * 43)
        assert response.status_code == 401
        assert "gitops_session" not in response.headers.get("set-cookie", "")

    @pytest.mark.parametrize("csrf", ["", "x", "A" * 43])
    def test_a_form_that_is_not_ours_is_refused(self, faces: Faces, csrf: str) -> None:
        plain = Tokens(faces.redis).create("ann", Role.VIEWER)
        assert sign_in(faces, plain, csrf=csrf).status_code == 403

    @pytest.mark.parametrize("path", ["/login", "/logout"])
    def test_a_page_of_another_site_can_neither_sign_in_nor_out(self, faces: Faces, path: str) -> None:
        sign_in(faces, Tokens(faces.redis).create("ann", Role.ADMIN))
        csrf = faces.http.cookies["gitops_csrf"]
        response = faces.http.post(path, data={"csrf": csrf}, headers={"origin": "https://evil.example"})
        assert (response.status_code, response.json()["code"]) == (403, "cross_site")
        assert faces.http.post("/logout", data={"csrf": "wrong"}).status_code == 403
        assert faces.http.get("/api/v1/targets").status_code == 200

    def test_a_page_of_another_site_can_not_act_with_a_session(self, faces: Faces) -> None:
        faces.target()
        sign_in(faces, Tokens(faces.redis).create("ann", Role.ADMIN))
        url = "/api/v1/targets/web/tick"
        assert faces.http.post(url, headers={"origin": "https://evil.example"}).status_code == 403
        assert faces.http.post(url, headers={"origin": "http://localhost"}).status_code == 202

    def test_signing_out_ends_the_session_in_this_browser(self, faces: Faces) -> None:
        sign_in(faces, Tokens(faces.redis).create("ann", Role.VIEWER))
        csrf = re.search(r'name="csrf" value="([^"]+)"', page(faces))
        assert csrf is not None
        assert faces.http.post("/logout", data={"csrf": csrf[1]}).status_code == 303
        assert faces.http.get("/api/v1/targets").status_code == 401

    def test_revoking_the_token_ends_its_sessions(self, faces: Faces) -> None:
        tokens = Tokens(faces.redis)
        tokens.create("other", Role.VIEWER)
        sign_in(faces, tokens.create("ann", Role.VIEWER))
        assert faces.http.get("/api/v1/targets").status_code == 200
        tokens.revoke("ann")
        assert faces.http.get("/api/v1/targets").status_code == 401

    @pytest.mark.parametrize(
        "change",
        [
            lambda c: c[:-1] + ("0" if c[-1] != "0" else "1"),
            lambda c: re.sub(r"\.\d+\.", ".99999999999.", c),
            lambda _: "x",
            lambda _: "",
        ],
    )
    def test_a_forged_session_is_none(self, faces: Faces, change) -> None:  # type: ignore[no-untyped-def]  # four lambdas
        sign_in(faces, Tokens(faces.redis).create("ann", Role.VIEWER))
        session = faces.http.cookies["gitops_session"]
        faces.http.cookies.clear()
        response = faces.http.get("/api/v1/targets", headers={"cookie": f"gitops_session={change(session)}"})
        assert response.status_code == 401

    def test_without_redis_pages_say_so(self, tmp_path: Path) -> None:
        with running_redis() as server, running_faces(server.url, tmp_path) as faces:
            server.stop()
            assert faces.http.get("/", headers={"accept": "text/html"}).status_code == 503
