"""The public models: closed, frozen, strict, and separate for each kind."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from gitops_reconciler.models import (
    AnsibleConfig,
    ApplyResult,
    BackEnd,
    BackendConfig,
    ChangeCounts,
    CloudFormationConfig,
    ComposeConfig,
    ManagedTarget,
    OpenTofuConfig,
    PiConfig,
    PulumiConfig,
    Status,
    TerraformConfig,
    default_notifier,
)

CONFIGS: TypeAdapter[Any] = TypeAdapter(BackendConfig)


class Duck:
    """A backend that inherits nothing."""

    def apply(self) -> Status:
        return Status(result=ApplyResult.NO_CHANGE)

    def destroy(self) -> Status:
        return Status(result=ApplyResult.NO_CHANGE)

    def get_outputs(self) -> dict[str, Any]:
        return {}


@pytest.mark.req("R0.1", "T5")
def test_an_apply_result_is_one_of_exactly_three_words() -> None:
    assert [result.value for result in ApplyResult] == ["no_change", "changed", "failed"]
    assert ApplyResult("changed") == "changed"
    with pytest.raises(ValueError, match="maybe"):
        ApplyResult("maybe")


@pytest.mark.req("R0.2")
def test_a_status_needs_a_result_and_is_frozen() -> None:
    status = Status.model_validate({"result": "no_change"})
    assert (status.message, status.counts) == ("", None)
    with pytest.raises(ValidationError):
        status.result = ApplyResult.CHANGED  # type: ignore[misc]  # frozen: that is the point
    for wrong in ({}, {"result": "maybe"}, {"result": "changed", "extra": 1}):
        with pytest.raises(ValidationError):
            Status.model_validate(wrong)


def test_change_counts_read_like_a_diffstat() -> None:
    assert str(ChangeCounts(added=1, changed=2)) == "+1 ~2 -0"


@pytest.mark.req("R0.3", "R0.62")
def test_the_protocol_has_three_methods_without_arguments_and_no_plan() -> None:
    members = {name for name in vars(BackEnd) if not name.startswith("_")}
    assert members == {"apply", "destroy", "get_outputs"}
    for name in members:
        assert list(inspect.signature(getattr(BackEnd, name)).parameters) == ["self"]


@pytest.mark.req("R0.4")
def test_any_object_with_the_three_methods_is_a_backend() -> None:
    assert isinstance(Duck(), BackEnd)
    assert ManagedTarget(name="web", backend=Duck(), repo=Path("/srv")).name == "web"


@pytest.mark.req("R0.4")
def test_an_object_that_lacks_one_is_refused_with_all_three_names() -> None:
    with pytest.raises(ValidationError, match="apply, destroy, get_outputs"):
        ManagedTarget(name="web", backend=object(), repo=Path("/srv"))  # type: ignore[arg-type]  # what is tested


@pytest.mark.req("R0.19")
def test_a_managed_target_is_frozen_and_logs_by_default() -> None:
    target = ManagedTarget(name="web", backend=Duck(), repo=Path("/srv"))
    assert target.notify is default_notifier
    with pytest.raises(ValidationError):
        target.name = "x"  # type: ignore[misc]  # frozen: that is the point


@pytest.mark.parametrize("name", ["", "Web", "-web", "web-", "a/b", "a b", "é", "x" * 129, "web\n"])
def test_a_name_that_could_not_be_a_file_or_a_key_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        ManagedTarget(name=name, backend=Duck(), repo=Path("/srv"))


@pytest.mark.req("R0.18")
def test_the_default_notifier_logs_one_error_with_name_and_message(caplog: pytest.LogCaptureFixture) -> None:
    default_notifier("web", Status(result=ApplyResult.FAILED, message="no disk"))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "web" in record.getMessage()
    assert "no disk" in record.getMessage()


@pytest.mark.req("R0.6")
@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"kind": "terraform", "workdir": "/w"}, TerraformConfig),
        ({"kind": "opentofu", "workdir": "/w"}, OpenTofuConfig),
        ({"kind": "pulumi", "project_dir": "/p", "stack": "dev"}, PulumiConfig),
        ({"kind": "cloudformation", "stack_name": "s", "template_path": "t", "region": "r"}, CloudFormationConfig),
        ({"kind": "compose", "compose_file": "c"}, ComposeConfig),
        ({"kind": "ansible", "playbook": "p", "inventory": "i"}, AnsibleConfig),
        ({"kind": "pi", "host": "h", "repo_path": "r"}, PiConfig),
    ],
)
def test_the_kind_chooses_the_config_and_no_field_can_be_changed(fields: dict[str, Any], kind: type[BaseModel]) -> None:
    config = CONFIGS.validate_python(fields)
    assert type(config) is kind
    for name in kind.model_fields:
        with pytest.raises(ValidationError):
            setattr(config, name, None)


@pytest.mark.req("R0.6")
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "nope"},
        {"kind": "terraform", "stack": "dev"},
        {"kind": "terraform", "workdir": "/w", "stack": "dev"},
        {"workdir": "/w"},
    ],
)
def test_an_unknown_kind_or_a_foreign_field_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CONFIGS.validate_python(fields)


@pytest.mark.req("R0.7")
def test_required_fields_alone_give_the_documented_defaults() -> None:
    terraform = TerraformConfig(workdir=Path("/w"))
    assert (terraform.var_file, terraform.workspace, terraform.dry_run) == (None, "default", False)
    assert PulumiConfig(project_dir=Path("/p"), stack="dev").backend_url is None
    stack = CloudFormationConfig(stack_name="s", template_path=Path("t"), region="r")
    assert dict(stack.parameters) == {}
    compose = ComposeConfig(compose_file=Path("c"))
    assert (compose.host, compose.project_name) == ("", None)
    assert dict(AnsibleConfig(playbook=Path("p"), inventory="i,").extra_vars) == {}
    assert list(PiConfig(host="h", repo_path=Path("r")).apply_command) == ["docker", "compose", "up", "-d"]


@pytest.mark.req("R0.7")
def test_defaults_are_never_shared_in_a_way_that_could_be_changed() -> None:
    one, other = (AnsibleConfig(playbook=Path("p"), inventory="i,") for _ in range(2))
    assert one.extra_vars is not other.extra_vars
