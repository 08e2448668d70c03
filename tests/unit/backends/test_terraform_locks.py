"""Which locks of Terraform's are looked into at all, and under which name a state is known."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.backends.http_locks import HttpLocks
from gitops_reconciler.backends.state_locks import Lock
from gitops_reconciler.backends.terraform_locks import TerraformLocks
from gitops_reconciler.backends.terraform_module import Module
from gitops_reconciler.backends.terraform_stream import Diagnostic
from gitops_reconciler.testing.backends import ReplayingRunner, make_tools

HTTP: dict[str, Any] = {
    "type": "http",
    "config": {"address": "http://s/a", "lock_address": "http://s/a", "unlock_address": "http://s/a"},
}
S3: dict[str, Any] = {"type": "s3", "config": {"bucket": "b", "key": "k", "use_lockfile": True}}


def locks(
    folder: Path, backend: Mapping[str, Any] | None, *, workspace: str = "default", env: Mapping[str, str] | None = None
) -> TerraformLocks:
    data = folder / ".terraform"
    data.mkdir(parents=True, exist_ok=True)
    (data / "terraform.tfstate").write_text(json.dumps({"backend": backend} if backend else {}))
    module = Module(
        workdir=folder, data_dir=data, state_dir=None, workspace=workspace, backend_config={}, binary="terraform"
    )
    tools = replace(make_tools(ReplayingRunner([])), engine_locks=folder / "engine")
    return TerraformLocks(module, tools, env or {})


@pytest.mark.parametrize("backend", [HTTP, S3])
def test_locks_that_outlive_their_holder_are_noted(tmp_path: Path, backend: Mapping[str, Any]) -> None:
    assert locks(tmp_path, backend).notes.root == tmp_path / "engine"


@pytest.mark.parametrize(
    "backend",
    [
        {"type": "gcs", "config": {"bucket": "b"}},
        {"type": "cloud", "config": {}},
        {"type": "s3", "config": {"bucket": "b", "key": "k"}},
        {"type": "s3", "config": {"bucket": "b", "key": "k", "use_lockfile": True, "dynamodb_table": "t"}},
    ],
)
def test_locks_that_were_never_tried_are_left_to_people(tmp_path: Path, backend: Mapping[str, Any]) -> None:
    made = locks(tmp_path, backend)
    assert made.notes.root is None
    verdict = made.judge(Lock(id="1-2-3", who="anybody"))
    assert (verdict.orphan_of, verdict.is_live) == (None, False)
    assert "left to people" in verdict.why


@pytest.mark.parametrize("backend", [None, {"type": "local", "config": {}}])
def test_a_lock_of_the_kernel_is_held_by_somebody_who_lives(tmp_path: Path, backend: Mapping[str, Any] | None) -> None:
    made = locks(tmp_path, backend)
    assert made.notes.root is None
    assert made.judge(Lock(id="1-2-3")).is_live


@pytest.mark.parametrize("value", ["-lock=false", "-no-color -lock=0", "--lock=true"])
def test_where_locking_is_switched_elsewhere_the_engines_words_prove_nothing(tmp_path: Path, value: str) -> None:
    assert locks(tmp_path, HTTP, env={"TF_CLI_ARGS_apply": value}).notes.root is None
    assert locks(tmp_path, HTTP, env={"TF_CLI_ARGS": "-lock-timeout=5s"}).notes.root is not None


def test_a_state_is_known_by_backend_workspace_and_folder_and_by_variables_that_say_where(tmp_path: Path) -> None:
    other = {**HTTP, "config": {**HTTP["config"], "address": "http://s/b"}}
    names = [
        locks(tmp_path, HTTP).notes.state,
        locks(tmp_path, other).notes.state,
        locks(tmp_path, S3).notes.state,
        locks(tmp_path, S3, workspace="prod").notes.state,
        locks(tmp_path / "elsewhere", HTTP).notes.state,
        locks(tmp_path, HTTP, env={"TF_HTTP_ADDRESS": "http://s/c"}).notes.state,
    ]
    assert len(set(names)) == len(names)
    assert locks(tmp_path, HTTP, env={"AWS_SESSION_TOKEN": "changes all the time"}).notes.state == names[0]


def test_an_id_that_is_no_id_is_never_handed_to_a_command(tmp_path: Path) -> None:
    assert "its id is none" in locks(tmp_path, S3).judge(Lock(id="-lock=false", who="x")).why


LOCKED = (
    "Error message: {how}\nLock Info:\n  ID:        66cd5eab\n  Path:      {path}\n"
    "  Operation: OperationTypeApply\n  Who:       deploy@worker-1\n  Version:   1.11.4\n"
    "  Created:   2026-05-04 12:00:01.123456789 +0000 UTC\n  Info:      \n\n\nTerraform acquires a state lock"
)


def test_who_was_refused_over_http_is_not_taken_for_the_holder() -> None:
    said = LOCKED.format(how="HTTP remote state already locked: ID=ecce1a42", path="")
    assert Diagnostic("Error acquiring the state lock", said).lock == {"ID": "ecce1a42"}


def test_a_holder_that_is_described_is_read_whole() -> None:
    said = LOCKED.format(how="HTTP remote state already locked: ID=66cd5eab", path="")
    lock = Lock.of(Diagnostic("Error acquiring the state lock", said).lock)
    assert (
        str(lock)
        == "deploy@worker-1 since 2026-05-04 12:00:01.123456789 +0000 UTC (OperationTypeApply, lock id 66cd5eab)"
    )
    said = LOCKED.format(how="PreconditionFailed", path="states/net")
    assert str(Lock.of(Diagnostic("Error acquiring the state lock", said).lock)).endswith(
        "lock id 66cd5eab, states/net)"
    )


def test_a_server_is_asked_only_with_all_that_it_wants() -> None:
    config = HTTP["config"]
    assert HttpLocks.of(config, {}, "us") is not None
    assert HttpLocks.of({**config, "client_certificate_pem": "x"}, {}, "us") is None
    assert HttpLocks.of({**config, "unlock_address": None}, {}, "us") is None
    assert (
        HttpLocks.of({}, {"TF_HTTP_LOCK_ADDRESS": "http://s", "TF_HTTP_UNLOCK_ADDRESS": "http://s"}, "us") is not None
    )
