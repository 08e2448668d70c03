"""The root of the library: all public names, and nothing heavy behind the import."""

import json
import subprocess
import sys

import pytest

import gitops_reconciler
from gitops_reconciler import backends

HEAVY = {"celery", "kombu", "fastapi", "boto3", "pulumi", "docker", "asyncssh", "ansible", "redis", "git", "pydantic"}
PROMISED = {
    "BackEnd",
    "build_backend",
    "ApplyResult",
    "Status",
    "TerraformConfig",
    "PulumiConfig",
    "CloudFormationConfig",
    "ComposeConfig",
    "AnsibleConfig",
    "PiConfig",
    "OpenTofuConfig",
    "BackendConfig",
    "ManagedTarget",
    "backend_lock",
    "run",
    "tick",
    "record_last_sha",
    "last_recorded_sha",
    "bind",
}


def loaded_by(code: str) -> set[str]:
    script = f"import json, sys; {code}; print(json.dumps(sorted(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(shown.stdout)}


@pytest.mark.req("R0.10")
@pytest.mark.parametrize("name", sorted(PROMISED | set(gitops_reconciler.__all__)))
def test_every_public_name_can_be_imported_from_the_root(name: str) -> None:
    assert name in gitops_reconciler.__all__
    assert name in dir(gitops_reconciler)
    assert getattr(gitops_reconciler, name) is not None


def test_importing_the_library_loads_nothing_heavy() -> None:
    assert not loaded_by("import gitops_reconciler") & HEAVY


def test_the_models_and_a_backend_load_no_server_and_no_cloud() -> None:
    code = "from gitops_reconciler import build_backend, TerraformConfig; build_backend(TerraformConfig(workdir='.'))"
    assert not loaded_by(code) & (HEAVY - {"pydantic"})


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'apply_everything'"):
        _ = gitops_reconciler.apply_everything  # type: ignore[attr-defined]  # the point


@pytest.mark.parametrize("name", backends.__all__)
def test_backend_classes_can_be_imported_from_their_package(name: str) -> None:
    assert getattr(backends, name).__name__ == name
