"""Settings: what is allowed, what is said when something is not, and that every one of them is documented."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_reconciler.errors import SettingsError, SpecError
from gitops_reconciler.settings import Settings, load_settings, parse_duration
from gitops_reconciler.supervise.order import Order

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("60s", 60), ("10m", 600), ("1h", 3600), ("3d", 259_200), ("45", 45), (45, 45), ("1.5h", 5400)],
)
def test_durations_are_a_number_with_a_unit(text: object, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "ten", "10 parsecs", "-5s", None, True, "1h30m"])
def test_other_durations_are_refused_with_what_is_allowed(text: object) -> None:
    with pytest.raises(ValueError, match="500ms, 60s, 10m, 1h"):
        parse_duration(text)


@pytest.mark.req("R4.1", "R4.2")
def test_a_repository_alone_gives_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRID_GITOPS_REPO_URL", "https://forge.example/acme/infra.git")
    settings = load_settings()
    assert settings.repo_url == "https://forge.example/acme/infra.git"
    assert (settings.repo_branch, settings.sync_interval_sec) == ("main", 600)


@pytest.mark.req("R4.2")
def test_an_interval_of_zero_stays_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_SYNC_INTERVAL_SEC", "0")
    assert load_settings().sync_interval_sec == 0


@pytest.mark.req("R4.3")
@pytest.mark.parametrize("path", ["../x", "a/../b", "/abs", "a\\..\\b"])
def test_a_path_that_leaves_the_repository_stops_the_start(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_REPO_PATH", path)
    with pytest.raises(SettingsError, match=r"GITOPS_REPO_PATH.*relative path without"):
        load_settings()


@pytest.mark.req("R4.3")
@pytest.mark.parametrize(("path", "meant"), [("a/b", "a/b"), (".", ""), ("./", ""), ("gitops/", "gitops")])
def test_a_path_is_taken_in_its_shortest_form(path: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_REPO_PATH", path)
    assert load_settings().repo_path == meant


def test_a_grace_that_outlives_the_lease_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_LEASE_GRACE", "31s")
    with pytest.raises(SettingsError, match=r"GITOPS_LEASE_GRACE \(31s\) may be at most half of GITOPS_LEASE_TTL"):
        load_settings()


@pytest.mark.parametrize(
    ("ttl", "grace", "renewal"), [("20s", "10s", "10s"), ("60s", "25s", "40s"), ("60s", "25s", "33s")]
)
def test_renewals_that_come_too_late_stop_the_start_and_not_each_run(
    ttl: str, grace: str, renewal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TTL": ttl, "GRACE": grace, "RENEWAL": renewal}.items():
        monkeypatch.setenv(f"GITOPS_LEASE_{name}", value)
    named = rf"GITOPS_LEASE_RENEWAL \({renewal}\).*GITOPS_LEASE_TTL \({ttl}\).*GITOPS_LEASE_GRACE \({grace}\)"
    with pytest.raises(SettingsError, match=named):
        load_settings()


@given(ttl=st.integers(1, 90), grace=st.integers(0, 45), renewal=st.integers(1, 60))
def test_an_order_takes_the_times_that_the_settings_took(ttl: int, grace: int, renewal: int) -> None:
    try:
        load_settings(lease_ttl=ttl, lease_grace=grace, lease_renewal=renewal)
    except SettingsError:
        with pytest.raises(SpecError):
            order_with(ttl, grace, renewal)
    else:
        order_with(ttl, grace, renewal)


def order_with(ttl: int, grace: int, renewal: int) -> Order:
    return Order(
        run="a" * 32,
        item="default/web",
        kind="note",
        token=1,
        generation=1,
        ttl_seconds=ttl,
        grace_seconds=grace,
        renewal_seconds=renewal,
        deadline_seconds=60,
        claimed_at=0,
        lock="",
        leftover="",
        log="",
    )


def test_every_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_PORT", "http")
    monkeypatch.setenv("GITOPS_INTERVAL", "often")
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert "GITOPS_PORT" in str(raised.value)
    assert "GITOPS_INTERVAL" in str(raised.value)


def test_a_wrong_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_REDIS_URL", "redis://:s3cret-canary@h/0")
    monkeypatch.setenv("GITOPS_PORT", "http")
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(load_settings(port=1))


def test_every_setting_stands_in_the_documentation_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(GITOPS_[A-Z_]+)` \| ([^|]*) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(rows) == {f"GITOPS_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default = field.default
        if isinstance(default, int | str) and not isinstance(default, bool):
            assert f"`{default}`" in rows[f"GITOPS_{name.upper()}"], name
        elif isinstance(default, timedelta):
            written = rows[f"GITOPS_{name.upper()}"].strip("` ")
            assert parse_duration(written) == default, name


def test_the_documentation_names_no_setting_that_is_not_there() -> None:
    named = set(re.findall(r"GITOPS_[A-Z_]+[A-Z]", DOCS.read_text(encoding="utf-8")))
    known = {f"GITOPS_{name.upper()}" for name in Settings.model_fields}
    aliases = {
        "GITOPS_REPO_URL",
        "GITOPS_BRANCH",
        "GITOPS_PATH",
        "GITOPS_SECRET",
    }  # inside GRID_GITOPS_…, GITOPS_SECRET_*
    assert named <= known | aliases


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_STATE_DIR", "")
    monkeypatch.setenv("GITOPS_REDIS_URL", "")
    settings = load_settings()
    assert settings.state_dir.is_absolute()
    assert settings.redis_url is None


@pytest.mark.parametrize("name", ["GITOPS_REDIS_URL", "GITOPS_BROKER_URL"])
def test_a_store_of_an_unknown_scheme_stops_the_start_and_is_not_shown(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "foo://user:s3cret-canary@h")
    with pytest.raises(SettingsError, match=f"{name}: must begin with one of: redis://") as raised:
        load_settings()
    assert "s3cret" not in str(raised.value)


def test_a_relative_state_folder_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_STATE_DIR", "here")
    with pytest.raises(SettingsError, match="'here' must be an absolute path"):
        load_settings()


def test_a_misspelt_setting_is_offered_the_right_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_REPOURL", "https://forge.example/x.git")
    with pytest.raises(SettingsError, match=r"GITOPS_REPOURL: there is no such setting \(did you mean GITOPS_REPO_URL"):
        load_settings()


def test_variables_that_are_meant_for_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_SECRET_TOKEN", "x")
    monkeypatch.setenv("GITOPS_OF_SOMEBODY_ELSE", "x")
    assert load_settings().port == 8420


def test_a_rule_about_several_settings_names_them_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITOPS_LEASE_GRACE", "31s")
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert str(raised.value).startswith("GITOPS_LEASE_GRACE (31s)")
