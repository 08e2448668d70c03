"""Terraform, replayed: what real runs printed, and what we make of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.backends.base import BackEnd
from gitops_reconciler.backends.terraform import OpenTofuBackend, TerraformBackend
from gitops_reconciler.errors import EngineLockedError, MaxRemovalsError, ReconcileError
from gitops_reconciler.models import ApplyResult, ChangeCounts, DetectsDrift, OpenTofuConfig, TerraformConfig
from gitops_reconciler.testing.backends import MemoryLog, Recorded, ReplayingRunner, make_tools

RECORDED = Path(__file__).parent / "terraform"
CASES: list[dict[str, Any]] = json.loads((RECORDED / "cases.json").read_text(encoding="utf-8"))
INIT = Recorded(words=("init",))


def said(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def recorded(word: str, name: str, returncode: int = 0) -> Recorded:
    return Recorded(words=(word,), returncode=returncode, stdout=said(f"{name}.jsonl"))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "main.tf").write_text('resource "terraform_data" "a" {}\n')
    return tmp_path


def backend(
    module: Path, *answers: Recorded, log: MemoryLog | None = None, env: dict[str, str] | None = None, **fields: Any
) -> tuple[TerraformBackend, ReplayingRunner]:
    runner = ReplayingRunner([INIT, *answers])
    config = TerraformConfig(workdir=module, **fields)
    return TerraformBackend(config, make_tools(runner, log=log, env=env)), runner


@pytest.mark.req("R0.32")
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["recorded"]))
def test_what_a_real_apply_said_is_understood(module: Path, case: dict[str, Any]) -> None:
    made, _ = backend(module, recorded("apply", case["recorded"], case["exit"]))
    status = made.apply()
    counts = case["counts"] and ChangeCounts(**dict(zip(("added", "changed", "removed"), case["counts"], strict=True)))
    assert (status.result, status.counts) == (ApplyResult(case["result"]), counts)
    assert status.message.startswith(case["message"])
    assert status.result is ApplyResult.FAILED or status.message == case["message"]


@pytest.mark.req("R0.32")
@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("Apply complete! Resources: 0 added, 0 changed, 0 destroyed.", ApplyResult.NO_CHANGE),
        ("Apply complete! Resources: 2 added, 1 changed, 0 destroyed.", ApplyResult.CHANGED),
        ("Apply complete! Resources: 10 added, 0 changed, 0 destroyed.", ApplyResult.CHANGED),
        ("Apply complete! Resources: 1 imported, 0 added, 0 changed, 0 destroyed.", ApplyResult.CHANGED),
    ],
)
def test_plain_text_is_understood_by_its_numbers(module: Path, line: str, result: ApplyResult) -> None:
    made, _ = backend(module, Recorded(words=("apply",), stdout=f"{line}\n"))
    assert made.apply().result is result


@pytest.mark.req("R0.31")
def test_apply_is_one_command_in_the_modules_folder_after_init(module: Path) -> None:
    made, runner = backend(module, recorded("apply", "apply_nothing"), var_file=Path("prod.tfvars"))
    made.apply()
    init, apply = runner.calls
    assert init.argv == ("terraform", "init", "-input=false", "-no-color")
    assert " ".join(apply.argv).startswith("terraform apply -auto-approve -no-color -input=false -json")
    assert apply.argv[-2:] == ("-var-file", str(Path("prod.tfvars").absolute()))
    assert "-lock-timeout=60s" in apply.argv
    assert {init.cwd, apply.cwd} == {module}
    assert apply.env["TF_IN_AUTOMATION"] == "1"
    assert apply.env["CHECKPOINT_DISABLE"] == "1"


@pytest.mark.req("R0.54")
def test_an_unchanged_module_is_applied_again_without_init(module: Path) -> None:
    made, runner = backend(module, recorded("apply", "apply_nothing"))
    made.apply()
    made.apply()
    assert runner.commands() == ["init", "apply", "apply"]


@pytest.mark.parametrize("edited", ["other.tf", "main.tf.json", ".terraform.lock.hcl", "main.tofu"])
def test_an_edited_module_is_initialised_again(module: Path, edited: str) -> None:
    made, runner = backend(module, recorded("apply", "apply_nothing"))
    made.apply()
    (module / edited).write_text("# new\n")
    made.apply()
    assert runner.commands() == ["init", "apply", "init", "apply"]


def test_a_wiped_data_folder_is_initialised_again(module: Path) -> None:
    made, runner = backend(module, recorded("apply", "apply_nothing"))
    made.apply()
    (module / ".terraform" / "gitops-init").unlink()
    made.apply()
    assert runner.commands() == ["init", "apply", "init", "apply"]


@pytest.mark.req("R0.8")
def test_backend_settings_are_given_to_init_and_a_change_of_them_initialises_again(module: Path) -> None:
    made, runner = backend(module, recorded("apply", "apply_nothing"), backend_config={"bucket": "b", "key": "k=1"})
    made.apply()
    assert runner.calls[0].argv[-2:] == ("-backend-config=bucket=b", "-backend-config=key=k=1")
    other, again = backend(module, recorded("apply", "apply_nothing"), backend_config={"bucket": "c"})
    other.apply()
    assert again.commands() == ["init", "apply"]


@pytest.mark.parametrize(
    "refusal", ["apply_module_not_installed", "apply_provider_not_installed", "apply_backend_not_initialised"]
)
def test_an_engine_that_asks_for_init_gets_it_once(module: Path, refusal: str) -> None:
    made, runner = backend(module, recorded("apply", refusal, 1), recorded("apply", "apply_create"))
    assert made.apply().result is ApplyResult.CHANGED
    assert runner.commands() == ["init", "apply", "init", "apply"]


def test_an_engine_that_asks_for_init_for_ever_fails(module: Path) -> None:
    made, runner = backend(module, recorded("apply", "apply_module_not_installed", 1))
    status = made.apply()
    assert status.result is ApplyResult.FAILED
    assert status.message.startswith("Module not installed (bad.tf:1)")
    assert runner.commands() == ["init", "apply", "init", "apply"]


def test_a_failed_init_says_why_and_is_tried_again_next_time(module: Path) -> None:
    runner = ReplayingRunner([Recorded(words=("init",), returncode=1, stderr=said("init_failed.stderr"))])
    made = TerraformBackend(TerraformConfig(workdir=module), make_tools(runner))
    for _ in range(2):
        status = made.apply()
        assert status.result is ApplyResult.FAILED
        assert status.message.startswith("init failed: Error loading state:")
        assert "connection refused" in status.message
    assert runner.commands() == ["init", "init"]


@pytest.mark.req("R0.33")
def test_without_error_messages_the_end_of_stderr_is_the_message(module: Path) -> None:
    stderr = "a" * 3000 + "b" * 2000
    made, _ = backend(module, Recorded(words=("apply",), returncode=1, stderr=stderr))
    status = made.apply()
    assert (status.result, status.message) == (ApplyResult.FAILED, "b" * 2000)


def test_a_silent_failure_still_has_a_message(module: Path) -> None:
    made, _ = backend(module, Recorded(words=("apply",), returncode=137))
    assert made.apply().message == "terraform exited 137"


def test_a_held_state_lock_is_waited_for_and_names_its_holder(module: Path) -> None:
    made, _ = backend(module, recorded("apply", "apply_locked", 1))
    with pytest.raises(
        EngineLockedError, match=r"locked by runner@worker-1 since 20\d\d-.*OperationTypeApply, lock id"
    ):
        made.apply()


def test_a_lock_that_cannot_be_reached_is_a_failure_not_a_wait(module: Path) -> None:
    detail = (
        "Error message: AccessDeniedException: no permission\n\nTerraform acquires a state lock to protect the state."
    )
    summary = "Error acquiring the state lock"
    line = json.dumps(
        {
            "@message": summary,
            "type": "diagnostic",
            "diagnostic": {"severity": "error", "summary": summary, "detail": detail},
        }
    )
    made, _ = backend(module, Recorded(words=("apply",), returncode=1, stdout=f"{line}\n"))
    assert made.apply().result is ApplyResult.FAILED


@pytest.mark.req("R0.35")
def test_destroy_uses_the_same_variables_and_workspace_as_apply(module: Path) -> None:
    fields: dict[str, Any] = {"var_file": Path("/v/prod.tfvars"), "workspace": "prod", "variables": {"zone": "b"}}
    made, runner = backend(module, recorded("destroy", "destroy"), **fields)
    status = made.destroy()
    assert (status.result, status.counts) == (ApplyResult.CHANGED, ChangeCounts(removed=1))
    call = runner.calls[-1]
    assert call.argv[1:3] == ("destroy", "-auto-approve")
    assert call.argv[-2:] == ("-var-file", "/v/prod.tfvars")
    assert (call.env["TF_WORKSPACE"], call.env["TF_VAR_zone"]) == ("prod", "b")


@pytest.mark.req("R0.35")
def test_destroying_nothing_is_no_change(module: Path) -> None:
    made, _ = backend(module, recorded("destroy", "destroy_nothing"))
    assert made.destroy().result is ApplyResult.NO_CHANGE


@pytest.mark.req("R0.35")
def test_every_command_but_init_gets_the_workspace(module: Path) -> None:
    made, runner = backend(module, recorded("apply", "apply_create"), Recorded(words=("output",)), workspace="prod")
    made.apply()
    runner.recorded.insert(0, Recorded(words=("output",), stdout="{}"))
    made.get_outputs()
    workspaces = {call.argv[1]: call.env.get("TF_WORKSPACE") for call in runner.calls}
    assert workspaces == {"init": None, "apply": "prod", "output": "prod"}


def test_a_workspace_of_the_environment_does_not_reach_the_tool(module: Path) -> None:
    made, runner = backend(module, recorded("apply", "apply_create"), env={"TF_WORKSPACE": "other"})
    made.apply()
    assert all("TF_WORKSPACE" not in call.env for call in runner.calls)


@pytest.mark.parametrize(
    ("value", "text"),
    [("a b", "a b"), (3, "3"), (True, "true"), (["x", "é"], '["x", "é"]'), ({"k": None}, '{"k": null}')],
)
def test_a_variable_arrives_as_text_or_as_json(module: Path, value: object, text: str) -> None:
    made, runner = backend(module, recorded("apply", "apply_create"), variables={"v": value})
    made.apply()
    assert runner.calls[-1].env["TF_VAR_v"] == text


def test_a_variable_that_is_null_keeps_its_default(module: Path) -> None:
    made, runner = backend(module, recorded("apply", "apply_create"), variables={"v": None})
    made.apply()
    assert "TF_VAR_v" not in runner.calls[-1].env


@pytest.mark.req("R0.37")
def test_a_dry_run_only_plans_and_says_what_would_change(module: Path) -> None:
    made, runner = backend(module, recorded("plan", "plan_create", 2), dry_run=True)
    status = made.apply()
    assert status.result is ApplyResult.NO_CHANGE
    assert status.message == "dry-run: would change +1 ~0 -0: create terraform_data.a"
    assert status.counts == ChangeCounts(added=1)
    assert runner.commands() == ["init", "plan"]
    assert "-detailed-exitcode" in runner.calls[-1].argv


@pytest.mark.req("R0.37")
def test_a_dry_run_with_nothing_to_do_says_so(module: Path) -> None:
    made, _ = backend(module, recorded("plan", "plan_nothing"), dry_run=True)
    status = made.apply()
    assert (status.result, status.message) == (ApplyResult.NO_CHANGE, "dry-run: no changes")


def test_a_dry_run_that_cannot_plan_fails(module: Path) -> None:
    made, _ = backend(module, recorded("plan", "apply_invalid", 1), dry_run=True)
    assert made.apply().result is ApplyResult.FAILED


def test_a_dry_run_never_destroys(module: Path) -> None:
    made, runner = backend(module, recorded("plan", "plan_create", 2), dry_run=True)
    assert made.destroy().message.startswith("dry-run: would change")
    assert runner.commands() == ["init", "plan"]
    assert "-destroy" in runner.calls[-1].argv


def test_more_removals_than_allowed_are_refused_by_name_before_anything_changes(module: Path) -> None:
    made, runner = backend(module, recorded("plan", "apply_replace", 2), max_removals=0)
    with pytest.raises(
        MaxRemovalsError, match=r"1 resources, and max_removals is 0: replace terraform_data\.b; nothing"
    ):
        made.apply()
    assert runner.commands() == ["init", "plan"]


def test_within_the_limit_exactly_the_plan_is_applied(module: Path) -> None:
    made, runner = backend(
        module,
        recorded("plan", "apply_replace", 2),
        recorded("apply", "apply_replace"),
        max_removals=1,
        var_file=Path("/v/p.tfvars"),
    )
    status = made.apply()
    assert (status.result, status.counts) == (ApplyResult.CHANGED, ChangeCounts(added=1, removed=1))
    plan, apply = runner.calls[1:]
    assert "/v/p.tfvars" in plan.argv
    assert "/v/p.tfvars" not in apply.argv  # a saved plan has its variables in it
    assert f"-out={apply.argv[-1]}" in plan.argv
    assert not Path(apply.argv[-1]).exists()


def test_with_a_limit_and_nothing_to_do_nothing_is_applied(module: Path) -> None:
    made, runner = backend(module, recorded("plan", "plan_nothing"), max_removals=1)
    assert made.apply().result is ApplyResult.NO_CHANGE
    assert runner.commands() == ["init", "plan"]


@pytest.mark.req("R0.34")
def test_outputs_are_values_by_name_and_sensitive_ones_are_known(module: Path) -> None:
    made, _ = backend(module, Recorded(words=("output",), stdout=said("output.json")))
    assert made.get_outputs() == {"o": "x", "s": "hush"}
    assert made.sensitive_outputs == {"s"}


@pytest.mark.req("R0.34")
def test_outputs_that_cannot_be_read_are_none(module: Path) -> None:
    made, _ = backend(module, Recorded(words=("output",), returncode=1, stderr="no state"))
    assert made.get_outputs() == {}


def test_outputs_that_are_no_json_are_an_error_that_says_so(module: Path) -> None:
    made, _ = backend(module, Recorded(words=("output",), stdout="Warning: hm\n{}"))
    with pytest.raises(ReconcileError, match="outputs of 'terraform' are no JSON"):
        made.get_outputs()


def test_drift_is_told_by_resource_without_a_lock(module: Path) -> None:
    made, runner = backend(module, recorded("plan", "drift", 2))
    report = made.detect_drift()
    assert report.drifted is True
    assert set(report.changes) == {"update pyfile_file.a", "delete pyfile_file.b"}
    assert {"-refresh-only", "-detailed-exitcode", "-lock=false"} <= set(runner.calls[-1].argv)


def test_no_drift_is_told_as_such(module: Path) -> None:
    made, _ = backend(module, recorded("plan", "drift_none"))
    assert made.detect_drift().drifted is False


def test_drift_that_cannot_be_told_is_unknown(module: Path) -> None:
    made, _ = backend(module, recorded("plan", "apply_missing_variable", 1))
    report = made.detect_drift()
    assert report.drifted is None
    assert "No value for required variable" in report.message


@pytest.mark.req("R0.36")
def test_opentofu_is_the_same_with_its_own_binary(module: Path) -> None:
    runner = ReplayingRunner([INIT, recorded("apply", "apply_create")])
    made = OpenTofuBackend(OpenTofuConfig(workdir=module), make_tools(runner))
    assert made.apply().result is ApplyResult.CHANGED
    assert {call.argv[0] for call in runner.calls} == {"tofu"}
    assert made.kind == "opentofu"


def test_another_binary_initialises_again(module: Path) -> None:
    made, _ = backend(module, recorded("apply", "apply_create"))
    made.apply()
    runner = ReplayingRunner([INIT, recorded("apply", "apply_create")])
    OpenTofuBackend(OpenTofuConfig(workdir=module), make_tools(runner)).apply()
    assert runner.commands() == ["init", "apply"]


@pytest.mark.req("R0.3", "R0.5")
def test_fields_or_a_config_make_the_same_backend(module: Path) -> None:
    made = TerraformBackend(
        workdir=module, tools=make_tools(ReplayingRunner([INIT, recorded("apply", "apply_create")]))
    )
    assert made.apply().result is ApplyResult.CHANGED
    assert isinstance(made, BackEnd)
    assert isinstance(made, DetectsDrift)


def test_a_config_and_fields_at_once_are_refused(module: Path) -> None:
    with pytest.raises(TypeError, match="TerraformConfig or its fields, not both"):
        TerraformBackend(TerraformConfig(workdir=module), workspace="prod")


def test_the_log_is_for_people_and_knows_the_version(module: Path) -> None:
    log = MemoryLog()
    made, _ = backend(module, recorded("apply", "apply_partial", 1), log=log)
    made.apply()
    assert log.tools == {"terraform": "1.11.4"}
    assert log.phases == ["init", "apply"]
    assert not any(line.startswith("{") for line in log.lines)
    assert "terraform_data.b: Modifications complete after 0s" in log.text
    assert "Error: local-exec provisioner error (main.tf:7, terraform_data.f)" in log.text


def test_a_line_broken_by_redaction_is_shown_and_does_no_harm(module: Path) -> None:
    broken = said("apply_create.jsonl").replace('"type":"planned_change"', '"type":***', 1)
    made, _ = backend(module, Recorded(words=("apply",), stdout=broken))
    assert made.apply().result is ApplyResult.CHANGED
