"""Which backend a config gets, and that nothing heavy is loaded for it."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from gitops_reconciler.backends.base import BackEnd, Tools
from gitops_reconciler.backends.registry import GROUP, KINDS, build_backend, config_type, known_kinds
from gitops_reconciler.errors import NotBuiltError
from gitops_reconciler.models import (
    AnsibleConfig,
    ApplyResult,
    DeclaredConfig,
    OpenTofuConfig,
    PulumiConfig,
    Scripts,
    Status,
    TerraformConfig,
)

CONFIGS: dict[str, Any] = {
    "terraform": TerraformConfig(workdir=Path("/m")),
    "opentofu": OpenTofuConfig(workdir=Path("/m")),
    "ansible": AnsibleConfig(playbook=Path("/p.yml"), inventory="h,"),
    "declared": DeclaredConfig(declared_kind="stdshell", scripts=Scripts(apply="true"), workdir=Path("/m")),
}


@pytest.mark.req("R0.9")
@pytest.mark.parametrize("kind", CONFIGS)
def test_each_config_gets_the_backend_of_its_kind(kind: str) -> None:
    made = build_backend(CONFIGS[kind])
    assert isinstance(made, BackEnd)
    assert getattr(made, "kind", None) == kind
    assert config_type(kind) is type(CONFIGS[kind])


def test_every_built_kind_is_tested_here() -> None:
    assert set(CONFIGS) == set(KINDS)


@pytest.mark.req("R0.3")
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_three_methods_take_no_argument(kind: str) -> None:
    made = build_backend(CONFIGS[kind])
    for name in ("apply", "destroy", "get_outputs"):
        assert not inspect.signature(getattr(made, name)).parameters


@pytest.mark.req("R0.9")
@pytest.mark.parametrize("wrong", ["x", 3, None, object()])
def test_anything_else_is_refused_by_the_name_of_its_type(wrong: object) -> None:
    with pytest.raises(TypeError, match=f"no backend registered for {type(wrong).__name__}"):
        build_backend(wrong)


def test_an_object_that_only_claims_a_kind_is_refused() -> None:
    class Impostor:
        kind = "terraform"

    with pytest.raises(TypeError, match="no backend registered for Impostor"):
        build_backend(Impostor())


def test_a_kind_that_is_not_built_is_refused_as_such() -> None:
    with pytest.raises(NotBuiltError, match="kind 'pulumi' is not built in this version"):
        build_backend(PulumiConfig(project_dir=Path("/p"), stack="dev"))


class MailConfig(BaseModel):
    kind: Literal["mail"] = "mail"


class MailBackend:
    kind = "mail"
    config_type = MailConfig

    def __init__(self, config: MailConfig, tools: Tools) -> None:
        self.tools = tools

    def apply(self) -> Status:
        return Status(result=ApplyResult.NO_CHANGE)

    def destroy(self) -> Status:
        return Status(result=ApplyResult.NO_CHANGE)

    def get_outputs(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def mail_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "gitops_mail-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gitops-mail\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nmail = gitops_mail_for_test:MailBackend\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "gitops_mail_for_test", sys.modules[__name__])


def test_an_installed_package_brings_a_kind_of_its_own(mail_package: None) -> None:
    made = build_backend(MailConfig())
    assert isinstance(made, MailBackend)
    assert made.tools.env
    assert config_type("mail") is MailConfig
    assert "mail" in known_kinds()
    assert "mail" not in KINDS


def test_our_own_settings_do_not_reach_tools(monkeypatch: pytest.MonkeyPatch, mail_package: None) -> None:
    monkeypatch.setenv("GITOPS_TOKEN", "secret")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    made = build_backend(MailConfig())
    assert isinstance(made, MailBackend)
    assert "GITOPS_TOKEN" not in made.tools.env
    assert made.tools.env["AWS_REGION"] == "eu-west-1"


def test_looking_a_backend_up_loads_nothing_of_the_others() -> None:
    code = (
        "import sys; from pathlib import Path; from gitops_reconciler.backends.registry import build_backend;"
        "from gitops_reconciler.models import TerraformConfig; build_backend(TerraformConfig(workdir=Path('.')));"
        "print([name for name in sys.modules if name.startswith('gitops_reconciler.backends.ansible')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
