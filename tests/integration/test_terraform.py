"""Terraform for real, beyond what all kinds have in common: workspaces, state, locks, init, partial failures."""

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.backends.terraform import TerraformBackend
from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import DeadlineExceededError, EngineLockedError, MaxRemovalsError, SpecError
from gitops_reconciler.models import ApplyResult, TerraformConfig
from gitops_reconciler.processes import SubprocessRunner
from gitops_reconciler.testing.backends import MemoryLog, make_tools
from tests.support.backend_kinds import Terraform as Kind
from tests.support.backend_kinds import environment
from tests.support.processes import OnceThere

Build = Callable[..., TerraformBackend]
A = 'resource "terraform_data" "a" {\n  input = "1"\n}\n'
FAILING = (
    'resource "terraform_data" "b" {\n  depends_on = [terraform_data.a]\n'
    '  provisioner "local-exec" {\n    command = "echo no such luck >&2; exit 3"\n  }\n}\n'
)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "main.tf").write_text(A)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def build(module: Path, home: Path, tmp_path: Path) -> Build:
    env = environment(Kind, tmp_path)

    def make(*, log: MemoryLog | None = None, deadline: Deadline | None = None, **fields: Any) -> TerraformBackend:
        config = TerraformConfig(**{"workdir": module, "state_dir": home, **fields})
        return TerraformBackend(config, make_tools(SubprocessRunner(), env=env, log=log, deadline=deadline))

    return make


def resources(state: Path) -> dict[str, str]:
    found = json.loads(state.read_text())["resources"]
    return {one["name"]: one["instances"][0].get("status", "") for one in found}


@pytest.mark.req("R0.35")
def test_a_workspace_is_made_by_its_first_apply_and_kept_apart(build: Build, home: Path) -> None:
    assert build(workspace="prod").apply().result is ApplyResult.CHANGED
    assert build(workspace="test").apply().result is ApplyResult.CHANGED
    assert build(workspace="test").destroy().result is ApplyResult.CHANGED
    assert resources(home / "prod.tfstate") == {"a": ""}
    assert resources(home / "test.tfstate") == {}
    assert not (home / "default.tfstate").exists()


def test_a_workspace_of_a_configured_backend_needs_no_step_of_its_own(build: Build, module: Path) -> None:
    (module / "backend.tf").write_text('terraform {\n  backend "local" {}\n}\n')
    for workspace in ("prod", "test"):
        made = build(workspace=workspace)
        assert made.apply().result is ApplyResult.CHANGED
        assert made.apply().result is ApplyResult.NO_CHANGE
        assert (module / "terraform.tfstate.d" / workspace / "terraform.tfstate").is_file()


def test_a_workspace_selected_by_hand_does_not_matter(build: Build, home: Path, module: Path) -> None:
    (module / ".terraform").mkdir()
    (module / ".terraform" / "environment").write_text("other")
    build().apply()
    assert resources(home / "default.tfstate") == {"a": ""}
    assert not (module / "terraform.tfstate.d" / "other").exists()


def test_local_state_survives_the_loss_of_the_checkout(build: Build, module: Path) -> None:
    build().apply()
    for path in sorted(module.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (module / "main.tf").write_text(A)
    assert build().apply().result is ApplyResult.NO_CHANGE


def test_state_beside_the_module_moves_along_and_nothing_is_made_twice(build: Build, module: Path, home: Path) -> None:
    build(state_dir=None).apply()
    assert (module / "terraform.tfstate").is_file()
    assert build().apply().result is ApplyResult.NO_CHANGE
    assert resources(home / "default.tfstate") == {"a": ""}


def test_a_backend_that_appears_while_state_is_kept_here_is_refused(build: Build, module: Path, home: Path) -> None:
    build().apply()
    (module / "backend.tf").write_text('terraform {\n  backend "local" {}\n}\n')
    with pytest.raises(SpecError, match="terraform state push"):
        build().apply()
    assert resources(home / "default.tfstate") == {"a": ""}


@pytest.mark.req("R0.8")
def test_a_missing_backend_setting_fails_and_a_given_one_works(build: Build, module: Path, tmp_path: Path) -> None:
    (module / "backend.tf").write_text('terraform {\n  backend "http" {}\n}\n')
    status = build().apply()
    assert status.result is ApplyResult.FAILED
    assert "address argument is required" in status.message
    (module / "backend.tf").write_text('terraform {\n  backend "local" {}\n}\n')
    elsewhere = tmp_path / "elsewhere.tfstate"
    assert build(backend_config={"path": str(elsewhere)}).apply().result is ApplyResult.CHANGED
    assert resources(elsewhere) == {"a": ""}


def test_a_changed_backend_is_not_migrated_behind_anybodys_back(build: Build, module: Path, tmp_path: Path) -> None:
    (module / "backend.tf").write_text('terraform {\n  backend "local" {}\n}\n')
    build(backend_config={"path": str(tmp_path / "one.tfstate")}).apply()
    status = build(backend_config={"path": str(tmp_path / "two.tfstate")}).apply()
    assert status.result is ApplyResult.FAILED
    assert "Backend configuration changed" in status.message
    assert not (tmp_path / "two.tfstate").exists()


def test_a_new_module_of_the_same_files_is_installed_when_terraform_asks(build: Build, module: Path) -> None:
    for name in ("one", "two"):
        (module / name).mkdir()
        (module / name / "main.tf").write_text('resource "terraform_data" "x" {}\n')
    (module / "main.tf").write_text('module "m" {\n  source = "./one"\n}\n')
    build().apply()
    log = MemoryLog()
    (module / "one" / "main.tf").write_text(
        'module "deeper" {\n  source = "../two"\n}\n'
    )  # no file of the root changed
    assert build(log=log).apply().result is ApplyResult.CHANGED
    assert log.phases == ["apply", "init", "apply"]


def test_a_partial_failure_says_what_was_done_and_keeps_it(build: Build, module: Path, home: Path) -> None:
    (module / "main.tf").write_text(A + FAILING)
    status = build().apply()
    assert status.result is ApplyResult.FAILED
    assert "local-exec provisioner error (main.tf:6, terraform_data.b)" in status.message
    assert "no such luck" in status.message
    assert status.message.endswith("done before that: create terraform_data.a")
    assert resources(home / "default.tfstate") == {"a": "", "b": "tainted"}
    (module / "main.tf").write_text(A)
    assert build().apply().result is ApplyResult.CHANGED
    assert resources(home / "default.tfstate") == {"a": ""}


@pytest.mark.req("R0.57")
def test_an_interrupted_apply_loses_nothing_and_frees_the_lock(build: Build, module: Path, home: Path) -> None:
    hangs = home / "hangs"
    slow = FAILING.replace("echo no such luck >&2; exit 3", f"touch {hangs}; exec sleep 600")
    (module / "main.tf").write_text(A + slow)
    with pytest.raises(DeadlineExceededError, match=r"timed out.*; done before that: create terraform_data\.a"):
        build(deadline=OnceThere(path=hangs)).apply()
    assert resources(home / "default.tfstate") == {"a": "", "b": "tainted"}
    (module / "main.tf").write_text(A)
    assert build(lock_timeout_seconds=0).apply().result is ApplyResult.CHANGED


def test_a_state_that_somebody_else_holds_is_waited_for(build: Build, home: Path) -> None:
    build().apply()
    holder = {"ID": "1-2-3", "Who": "ann@laptop", "Operation": "OperationTypeApply", "Created": "2026-01-02T03:04:05Z"}
    (home / ".default.tfstate.lock.info").write_text(json.dumps(holder))
    with (home / "default.tfstate").open("r+b") as state:
        fcntl.lockf(state, fcntl.LOCK_EX)
        with pytest.raises(EngineLockedError, match=r"locked by ann@laptop since 2026-01-02.*lock id 1-2-3"):
            build(lock_timeout_seconds=0).apply()
    assert build(lock_timeout_seconds=0).apply().result is ApplyResult.NO_CHANGE


def test_more_removals_than_allowed_change_nothing(build: Build, module: Path, home: Path) -> None:
    build().apply()
    (module / "main.tf").write_text('resource "terraform_data" "new" {}\n')
    with pytest.raises(MaxRemovalsError, match=r"delete terraform_data\.a; nothing was changed"):
        build(max_removals=0).apply()
    assert resources(home / "default.tfstate") == {"a": ""}
    status = build(max_removals=1).apply()
    assert (status.result, str(status.counts)) == (ApplyResult.CHANGED, "+1 ~0 -1")
    assert build(max_removals=0).apply().result is ApplyResult.NO_CHANGE


@pytest.mark.parametrize("mistake", ["var_file", "module"])
def test_variables_come_from_the_config_and_a_file_of_it_wins(build: Build, module: Path, mistake: str) -> None:
    (module / "main.tf").write_text(
        'variable "one" {}\nvariable "many" {\n  type = map(list(string))\n}\n'
        'output "all" {\n  value = [var.one, var.many]\n}\n'
    )
    (module / "prod.tfvars").write_text('one = "of the file"\n')
    variables = {"one": "of the config", "many": {"k": ["v w", '"q"']}}
    made = build(variables=variables, var_file=module / "prod.tfvars" if mistake == "var_file" else None)
    made.apply()
    expected = "of the file" if mistake == "var_file" else "of the config"
    assert made.get_outputs() == {"all": [expected, {"k": ["v w", '"q"']}]}


@pytest.mark.req("R0.34")
def test_sensitive_outputs_are_returned_and_named_and_never_logged(build: Build, module: Path) -> None:
    (module / "main.tf").write_text('output "key" {\n  value     = "very-secret"\n  sensitive = true\n}\n')
    log = MemoryLog()
    made = build(log=log)
    made.apply()
    assert made.get_outputs() == {"key": "very-secret"}
    assert made.sensitive_outputs == {"key"}
    assert "very-secret" not in log.text


def test_settings_of_terraform_that_do_not_exist_do_not_disturb(module: Path, home: Path, tmp_path: Path) -> None:
    env = {**environment(Kind, tmp_path), "TF_CLI_CONFIG_FILE": "/nonexistent/terraformrc"}
    config = TerraformConfig(workdir=module, state_dir=home)
    made = TerraformBackend(config, make_tools(SubprocessRunner(), env=env))
    assert made.apply().result is ApplyResult.CHANGED
    assert made.apply().result is ApplyResult.NO_CHANGE
    assert made.get_outputs() == {}
    assert made.detect_drift().drifted is False


def test_an_empty_folder_is_a_failure_and_tears_nothing_down(build: Build, module: Path, home: Path) -> None:
    build().apply()
    (module / "main.tf").unlink()
    status = build().apply()
    assert status.result is ApplyResult.FAILED
    assert "No configuration files" in status.message
    assert resources(home / "default.tfstate") == {"a": ""}
