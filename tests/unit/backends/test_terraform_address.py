"""The address of a state: the same however it is written, different where the state is, and never a secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gitops_reconciler.backends.terraform import TerraformBackend
from gitops_reconciler.backends.terraform_address import StateAddress
from gitops_reconciler.models import TerraformConfig


def address(
    kind: str, settings: Mapping[str, object], *, workspace: str = "default", env: Mapping[str, str] | None = None
) -> str:
    where = StateAddress(workdir=Path("/trees/net"), workspace=workspace, host="edge-1", env=env or {})
    return where.of(kind, settings)


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("local", {"path": "../x.tfstate"}, "local state edge-1:/trees/x.tfstate"),
        ("local", {"path": None}, "local state edge-1:/trees/net/terraform.tfstate"),
        ("http", {"address": "https://u:hush@Forge.example/state/1"}, "http state https://forge.example/state/1"),
        ("s3", {"bucket": "b", "key": "net/k", "region": "eu-1"}, "s3 state b/net/k"),
        (
            "s3",
            {"bucket": "b", "key": "k", "endpoints": {"s3": "http://minio:9000"}, "secret_key": "hush"},
            "s3 state b/k at http://minio:9000",
        ),
        ("gcs", {"bucket": "b", "prefix": None}, "gcs state b"),
        (
            "azurerm",
            {"storage_account_name": "a", "container_name": "c", "key": "k", "access_key": "hush"},
            "azurerm state a/c/k",
        ),
        (
            "pg",
            {"conn_str": "postgres://u:hush@db:5432/tf?sslmode=disable"},
            "pg state db:5432/tf schema terraform_remote_state",
        ),
        (
            "pg",
            {"conn_str": "host=db port=5432 dbname=tf password='hush'", "schema_name": "net"},
            "pg state db:5432/tf schema net",
        ),
        ("consul", {"address": "consul:8500", "path": "net", "access_token": "hush"}, "consul state consul:8500 net"),
        ("kubernetes", {"host": "https://k8s", "secret_suffix": "net"}, "kubernetes state https://k8s default/net"),
        (
            "cloud",
            {"organization": "acme", "workspaces": {"name": "net"}, "token": "hush"},
            "cloud state app.terraform.io/acme/net",
        ),
        (
            "remote",
            {"hostname": "tfe", "organization": "acme", "workspaces": [{"prefix": "net-"}]},
            "remote state tfe/acme/net-default",
        ),
    ],
)
def test_an_address_names_the_state_and_no_secret(kind: str, settings: Mapping[str, object], expected: str) -> None:
    told = address(kind, settings)
    assert told == expected
    assert "hush" not in told


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("s3", {"bucket": "b"}),
        ("http", {}),
        ("pg", {}),
        ("consul", {"path": "net"}),
        ("kubernetes", {"secret_suffix": "net"}),
        ("cloud", {"workspaces": {"name": "net"}}),
        ("inmem", {}),
    ],
)
def test_a_state_whose_address_is_not_known_has_none(kind: str, settings: Mapping[str, object]) -> None:
    assert address(kind, settings) == ""


def test_workspaces_are_states_of_their_own() -> None:
    told = address("local", {"path": "/shared/x.tfstate"}, workspace="prod")
    assert told == "local state edge-1:/trees/net/terraform.tfstate.d/prod/terraform.tfstate"
    assert address("s3", {"bucket": "b", "key": "k"}, workspace="prod") == "s3 state b/k workspace prod"


def test_a_query_tells_states_apart_and_is_not_shown() -> None:
    one, two = (address("http", {"address": f"https://x/state?token=hush{number}"}) for number in (1, 2))
    assert one != two
    assert "hush" not in one + two


def test_what_a_backend_takes_from_the_environment_addresses_it_as_well() -> None:
    assert address("http", {}, env={"TF_HTTP_ADDRESS": "https://x/1"}) == address("http", {"address": "https://x/1"})
    assert address("pg", {}, env={"PG_CONN_STR": "postgres://u:hush@db/tf"}).startswith("pg state db/tf")


def test_a_state_that_is_kept_in_the_targets_own_home_is_nobody_elses(tmp_path: Path) -> None:
    backend = TerraformBackend(TerraformConfig(workdir=tmp_path, state_dir=tmp_path / "home"))
    (tmp_path / ".terraform").mkdir()
    backend._module.mark_initialised()
    assert backend.resource_key() == ""
    settings = {"type": "http", "config": {"address": "https://u:hush@forge.example/1"}}
    (tmp_path / ".terraform" / "terraform.tfstate").write_text(json.dumps({"backend": settings}))
    assert backend.resource_key() == "http state https://forge.example/1"
