"""The public API as a user writes it. Type-checked, never run."""

import logging
from pathlib import Path
from typing import Any, assert_type

from pydantic import TypeAdapter

from gitops_reconciler import (
    AnsibleConfig,
    ApplyResult,
    BackEnd,
    BackendConfig,
    DetectsDrift,
    ManagedTarget,
    Outcome,
    ReconcileError,
    Status,
    Tools,
    backend_lock,
    build_backend,
    last_recorded_sha,
    record_last_sha,
    run,
    tick,
)
from gitops_reconciler.backends import AnsibleBackend, DeclaredBackend, OpenTofuBackend, TerraformBackend
from gitops_reconciler.backends.base import Builder
from gitops_reconciler.models import OpenTofuConfig, TerraformConfig


def the_example() -> None:
    target = ManagedTarget(
        name="prod-network",
        backend=build_backend(TerraformConfig(workdir=Path("/srv/infra/network"))),
        repo=Path("/srv/infra"),
    )
    assert_type(tick(target), Outcome)
    assert_type(run([target]), list[Outcome])


def both_styles_of_construction() -> list[BackEnd]:
    return [
        TerraformBackend(TerraformConfig(workdir=Path("/m"))),
        TerraformBackend(workdir=Path("/m"), workspace="prod"),
        OpenTofuBackend(OpenTofuConfig(workdir=Path("/m"))),
        AnsibleBackend(AnsibleConfig(playbook=Path("/p.yml"), inventory="h1,h2,")),
        DeclaredBackend(declared_kind="stdshell", scripts={"apply": "true"}, workdir=Path("/m")),
    ]


def a_config_is_read_from_a_file(fields: dict[str, Any]) -> BackEnd:
    adapter: TypeAdapter[BackendConfig] = TypeAdapter(BackendConfig)
    return build_backend(adapter.validate_python(fields))


class MyBackend:
    """Nothing to inherit: three methods make a backend."""

    def apply(self) -> Status:
        if not Path("/etc/motd").exists():
            raise ReconcileError("/etc/motd is gone")
        return Status(result=ApplyResult.NO_CHANGE)

    def destroy(self) -> Status:
        return Status(result=ApplyResult.FAILED, message="never")

    def get_outputs(self) -> dict[str, Any]:
        return {"path": "/etc/motd"}


def a_backend_of_ones_own() -> ManagedTarget:
    def tell(name: str, status: Status) -> None:
        logging.getLogger("alerts").error("%s: %s", name, status.message)

    return ManagedTarget(name="motd", backend=MyBackend(), repo=Path("/srv/infra"), notify=tell, sync=False)


def drift_where_it_can_be_told(backend: BackEnd) -> bool | None:
    return backend.detect_drift().drifted if isinstance(backend, DetectsDrift) else None


def outputs_and_records(backend: BackEnd) -> None:
    assert_type(backend.get_outputs(), dict[str, Any])
    status = backend.apply()
    assert_type(status.result, ApplyResult)
    record_last_sha("motd", "0" * 40, status)
    assert_type(last_recorded_sha("motd"), str | None)


def a_lock_of_ones_own() -> None:
    with backend_lock("terraform", "prod-network") as is_ours:
        assert_type(is_ours, bool)


def a_builder_of_a_package(config: TerraformConfig, tools: Tools) -> BackEnd:
    builder: Builder = TerraformBackend
    return builder(config, tools)
