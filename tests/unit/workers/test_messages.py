"""Names on the wire and the broker's address."""

import pytest

from gitops_reconciler.errors import SettingsError
from gitops_reconciler.settings import Settings
from gitops_workers.messages import BUILT_IN_POOLS, broker_url, consumed_pools, notifies, tick_queue


def settings(**fields: object) -> Settings:
    return Settings.model_validate(fields)


@pytest.mark.parametrize(
    ("store", "broker"),
    [
        ("redis://host", "redis://host/0"),
        ("redis://host:7000/4", "redis://host:7000/4"),
        ("redis://user:p%40ss@host/?db=2", "redis://user:p%40ss@host/2"),
        ("redis://host/1?socket_timeout=3", "redis://host/1"),
        ("unix:///run/gitops/redis.sock", "redis+socket:///run/gitops/redis.sock?virtual_host=0"),
        ("unix://ann:pw@/run/r.sock?db=5", "redis+socket://ann:pw@/run/r.sock?virtual_host=5"),
        ("unix:///run/r.sock?password=pw", "redis+socket://:pw@/run/r.sock?virtual_host=0"),
        (
            "sentinel://ann:p%40ss@one,two:7000/fleet/3",
            "sentinel://ann:p%40ss@one:26379/3;sentinel://ann:p%40ss@two:7000/3",
        ),
    ],
)
def test_the_broker_is_named_the_way_kombu_reads_it(store: str, broker: str) -> None:
    assert broker_url(settings(redis_url=store)) == broker


def test_a_broker_behind_tls_must_show_a_trusted_certificate() -> None:
    assert broker_url(settings(redis_url="rediss://host/0")) == "rediss://host/0?ssl_cert_reqs=required"
    assert broker_url(settings(redis_url="rediss://host/0?ssl_cert_reqs=none")).endswith("?ssl_cert_reqs=none")


def test_a_broker_of_its_own_wins_over_the_store() -> None:
    assert broker_url(settings(redis_url="redis://store/0", broker_url="redis://broker/1")) == "redis://broker/1"


def test_without_a_store_there_is_no_fleet_and_the_setting_is_named() -> None:
    with pytest.raises(SettingsError, match="GITOPS_REDIS_URL"):
        broker_url(settings())


def test_a_worker_of_all_pools_serves_the_built_in_ones_and_those_that_items_want() -> None:
    assert set(consumed_pools(settings(), {"lab"})) == {*BUILT_IN_POOLS, "lab"}


def test_a_worker_of_named_pools_serves_no_other() -> None:
    assert consumed_pools(settings(pools="terraform, lab"), {"ansible"}) == ("lab", "terraform")
    assert tick_queue("lab") == "tick.lab"


def test_alerts_are_sent_by_workers_of_everything_and_by_those_that_have_a_channel() -> None:
    assert notifies(settings())
    assert not notifies(settings(pools="terraform"))
    assert notifies(settings(pools="terraform,notify"))
    assert notifies(settings(pools="terraform", notify="file:chat"))
    assert consumed_pools(settings(pools="terraform,notify")) == ("terraform",)
