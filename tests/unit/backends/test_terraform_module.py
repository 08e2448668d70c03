"""The files around a Terraform module: workspace, state outside the checkout, and nothing forgotten."""

import json
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.backends.terraform_module import Module
from gitops_reconciler.errors import SpecError


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "stacks" / "network"
    folder.mkdir(parents=True)
    (folder / "main.tf").write_text("# empty\n")
    return folder


def module(workdir: Path, **fields: Any) -> Module:
    defaults: dict[str, Any] = {
        "workdir": workdir,
        "data_dir": workdir / ".terraform",
        "state_dir": None,
        "workspace": "default",
        "backend_config": {},
        "binary": "terraform",
    }
    return Module(**{**defaults, **fields})


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def configure_backend(workdir: Path, kind: str) -> None:
    write(workdir / ".terraform" / "terraform.tfstate", {"version": 3, "backend": {"type": kind, "config": {}}})


def test_without_a_state_folder_terraform_keeps_its_own_way(workdir: Path) -> None:
    assert module(workdir).state_flag() == []


def test_local_state_is_kept_per_workspace_outside_the_checkout(workdir: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert module(workdir, state_dir=home).state_flag() == [f"-state={home}/default.tfstate"]
    assert module(workdir, state_dir=home, workspace="prod").state_flag() == [f"-state={home}/prod.tfstate"]
    assert home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", ["s3", "local", "cloud"])
def test_a_module_with_a_backend_keeps_its_state_there(workdir: Path, tmp_path: Path, kind: str) -> None:
    configure_backend(workdir, kind)
    assert module(workdir, state_dir=tmp_path / "home").state_flag() == []


@pytest.mark.parametrize(
    ("workspace", "place"),
    [("default", "terraform.tfstate"), ("prod", "terraform.tfstate.d/prod/terraform.tfstate")],
)
def test_state_that_lies_beside_the_module_is_taken_along_once(
    workdir: Path, tmp_path: Path, workspace: str, place: str
) -> None:
    beside = write(workdir / place, {"serial": 7})
    kept = tmp_path / "home" / f"{workspace}.tfstate"
    made = module(workdir, state_dir=tmp_path / "home", workspace=workspace)
    made.state_flag()
    assert json.loads(kept.read_text()) == {"serial": 7}
    write(kept, {"serial": 8})
    made.state_flag()
    assert json.loads(kept.read_text()) == {"serial": 8}
    assert json.loads(beside.read_text()) == {"serial": 7}


def test_a_new_backend_is_refused_while_our_state_holds_resources(workdir: Path, tmp_path: Path) -> None:
    kept = write(tmp_path / "home" / "default.tfstate", {"resources": [{"type": "x"}]})
    configure_backend(workdir, "s3")
    made = module(workdir, state_dir=tmp_path / "home")
    with pytest.raises(SpecError, match=r"has a 's3' backend now.*terraform state push .*default\.tfstate"):
        made.state_flag()
    write(kept, {"resources": []})
    assert made.state_flag() == []


def test_encrypted_state_counts_as_holding_resources(workdir: Path, tmp_path: Path) -> None:
    write(tmp_path / "home" / "default.tfstate", {"encrypted_data": "…"})
    configure_backend(workdir, "s3")
    with pytest.raises(SpecError):
        module(workdir, state_dir=tmp_path / "home").state_flag()


@pytest.mark.parametrize(
    ("workspace", "selected", "backend", "expected"),
    [
        ("default", "", None, {}),
        ("default", "default", "s3", {}),
        ("default", "prod", "s3", {"TF_WORKSPACE": "default"}),
        ("default", "prod", "cloud", {}),
        ("default", "prod", "remote", {}),
        ("prod", "", None, {"TF_WORKSPACE": "prod"}),
        ("prod", "other", "s3", {"TF_WORKSPACE": "prod"}),
    ],
)
def test_the_workspace_is_the_configured_one_whatever_was_selected_by_hand(
    workdir: Path, workspace: str, selected: str, backend: str | None, expected: dict[str, str]
) -> None:
    if backend:
        configure_backend(workdir, backend)
    if selected:
        (workdir / ".terraform").mkdir(exist_ok=True)
        (workdir / ".terraform" / "environment").write_text(selected)
    assert module(workdir, workspace=workspace).workspace_variable() == expected


def test_an_unreadable_marker_means_not_initialised(workdir: Path) -> None:
    made = module(workdir)
    made.mark_initialised()
    assert made.is_initialised
    (workdir / ".terraform" / "gitops-init").write_bytes(b"\xff\xfe")
    assert not made.is_initialised


def test_a_file_that_is_not_the_modules_does_not_ask_for_init(workdir: Path) -> None:
    made = module(workdir)
    made.mark_initialised()
    (workdir / "README.md").write_text("new")
    (workdir / "prod.tfvars").write_text("a = 1")
    assert made.is_initialised
