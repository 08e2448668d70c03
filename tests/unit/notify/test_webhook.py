"""What a webhook refuses before it connects, and ids that stay."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gitops_reconciler.clock import SystemClock
from gitops_reconciler.errors import DeliveryError
from gitops_reconciler.notify.base import Alert
from gitops_reconciler.notify.channels import build_channels, channel_name
from gitops_reconciler.notify.log import LogChannel
from gitops_reconciler.notify.webhook import WebhookChannel, is_loopback, message_id
from gitops_reconciler.secrets import ReferencedSecrets
from gitops_reconciler.settings import Settings

ALERT = Alert(
    key="default/web:broken",
    event="failed",
    target="default/web",
    kind="terraform",
    reason="ApplyFailed",
    message="exit 1",
    run="0" * 32,
    revision="a" * 40,
    at=datetime(2026, 11, 29, tzinfo=UTC),
)


def channel(place: str, secret: str | None = None, **environ: str) -> WebhookChannel:
    secrets = ReferencedSecrets(folder=None, environ=environ)
    return WebhookChannel(name=channel_name(place), place=place, secret=secret, secrets=secrets, clock=SystemClock())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_is_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example", "10.0.0.1", "0.0.0.0", "::", "127.0.0.1.example", ""])
def test_no_other_machine_is_taken_for_this_one(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("place", ["https://hooks.example/T0/s3cret", "http://127.0.0.1@hooks.example/s3cret"])
def test_a_plain_url_that_leaves_this_machine_is_refused_and_not_shown(place: str) -> None:
    with pytest.raises(DeliveryError, match="by reference") as caught:
        channel(place).send(ALERT)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ftp://hooks.example/s3cret", "file:///etc/s3cret", "hooks.example/s3cret", "http:///s3cret",
            "http://host:99999/s3cret", "http://[::1/s3cret"],
)  # fmt: skip
def test_what_a_reference_holds_must_be_an_http_url_and_is_not_shown_when_it_is_none(url: str) -> None:
    with pytest.raises(DeliveryError, match="GITOPS_SECRET_CHAT") as caught:
        channel("env:GITOPS_SECRET_CHAT", GITOPS_SECRET_CHAT=url).send(ALERT)
    assert "s3cret" not in str(caught.value)


def test_a_reference_to_nothing_is_an_error_of_delivery_that_names_it() -> None:
    with pytest.raises(DeliveryError, match="env:GITOPS_SECRET_CHAT"):
        channel("env:GITOPS_SECRET_CHAT").send(ALERT)


def test_a_signing_secret_that_is_no_base64_is_not_used_as_something_else() -> None:
    with pytest.raises(DeliveryError, match="no base64"):
        channel("http://127.0.0.1:9/", secret="env:GITOPS_SECRET_KEY", GITOPS_SECRET_KEY="whsec_%%%").send(ALERT)


def test_the_id_stays_over_retries_and_differs_between_alerts() -> None:
    later = replace(ALERT, at=datetime(2026, 11, 30, tzinfo=UTC))
    assert message_id(ALERT) == message_id(replace(ALERT, message="said differently"))
    assert len({message_id(alert) for alert in (ALERT, later, replace(ALERT, event="recovered"))}) == 3


def test_the_name_of_a_channel_is_its_reference_and_never_its_url() -> None:
    assert channel_name("file:chat") == "file:chat"
    assert "s3cret" not in channel_name("http://127.0.0.1/s3cret")


def test_without_a_channel_alerts_go_to_the_log() -> None:
    (name, only), *more = build_channels(Settings()).items()
    assert name == "log"
    assert isinstance(only, LogChannel)
    assert not more


def test_each_place_of_the_settings_is_a_channel() -> None:
    settings = Settings.model_validate({"notify": "file:chat, env:GITOPS_SECRET_PAGER"})
    assert list(build_channels(settings)) == ["file:chat", "env:GITOPS_SECRET_PAGER"]


def test_the_log_tells_a_breakage_as_an_error_and_the_recovery_as_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    LogChannel().send(ALERT)
    LogChannel().send(replace(ALERT, event="recovered"))
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "default/web" in caplog.records[0].getMessage()
    assert "exit 1" in caplog.records[0].getMessage()
