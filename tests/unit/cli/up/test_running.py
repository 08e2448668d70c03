"""What `gitops up` decides before it starts anything."""

from pathlib import Path

from gitops_reconciler.cli.up.addresses import url_of
from gitops_reconciler.cli.up.running import _environment, _greeting, _Plan, _server
from gitops_reconciler.settings import Settings


def settings(tmp_path: Path, **fields: object) -> Settings:
    return Settings.model_validate({"GITOPS_STATE_DIR": tmp_path, **fields})


def test_a_store_that_is_set_is_used_and_no_server_is_started(tmp_path: Path) -> None:
    given = settings(tmp_path, redis_url="redis://store:6379/3")
    assert _server(given) == []
    assert _environment(given)["GITOPS_REDIS_URL"] == "redis://store:6379/3"
    assert not (tmp_path / "redis").exists()


def test_without_one_everything_talks_to_the_embedded_server(tmp_path: Path) -> None:
    assert _environment(settings(tmp_path))["GITOPS_REDIS_URL"] == f"unix://{tmp_path}/redis/redis.sock"


def test_webhook_secrets_of_the_operator_are_left_alone(tmp_path: Path) -> None:
    given = settings(tmp_path / "state", webhook_secrets_dir=tmp_path / "mine")
    assert _environment(given)["GITOPS_WEBHOOK_SECRETS_DIR"] == str(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_webhook_secrets_stay_the_same_at_the_second_start(tmp_path: Path) -> None:
    first, second = (
        (Path(_environment(settings(tmp_path))["GITOPS_WEBHOOK_SECRETS_DIR"]) / "github").read_text() for _ in range(2)
    )
    assert first == second


def test_the_greeting_tells_no_password(tmp_path: Path) -> None:
    given = settings(tmp_path, redis_url="redis://ann:s3cret@store/0")
    told = _greeting(given, _Plan(roles=[], url="http://127.0.0.1:8420", flower_url="http://127.0.0.1:5555"))
    assert "s3cret" not in "\n".join(told)
    assert any("http://127.0.0.1:5555" in line for line in told)


def test_an_address_opens_in_a_browser_also_when_it_listens_everywhere() -> None:
    assert url_of("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert url_of("::", 80) == "http://[::1]:80"
    assert url_of("10.1.2.3", 80) == "http://10.1.2.3:80"
