from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.errors import NotBuiltError, SecretError, SpecError
from gitops_reconciler.manifests.binding import bind
from gitops_reconciler.manifests.documents import ManifestDocument, ProviderConfigDocument, ResourceDocument
from gitops_reconciler.models import (
    AnsibleConfig,
    BackendConfig,
    DeclaredConfig,
    OpenTofuConfig,
    Scripts,
    TerraformConfig,
)
from gitops_reconciler.secrets import ReferencedSecrets
from tests.support.trees import resource, tree_of

SHELL = (
    "type: manifest\nkind: shell\nschema: {required: [say]}\nscripts: {apply: 'exit 3', outputs: echo}\ntimeout: 90s"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a module, a playbook, and symlinks of both sorts."""
    root = tmp_path / "checkout"
    for path in (
        "stacks/net/main.tf",
        "stacks/shared.tfvars",
        "ansible/site.yml",
        "ansible/inventory/hosts",
        ".git/config",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.tfvars").touch()
    (root / "stacks" / "out").symlink_to(tmp_path / "outside")
    (root / "stacks" / "out.tfvars").symlink_to(tmp_path / "outside" / "x.tfvars")
    (root / "stacks" / "git").symlink_to(root / ".git")
    (root / "stacks" / "loop").symlink_to(root / "stacks" / "loop")
    (root / "stacks" / "alias").symlink_to("net")
    return root


def secrets(tmp_path: Path, environ: Mapping[str, str] | None = None) -> ReferencedSecrets:
    return ReferencedSecrets(folder=tmp_path, environ=environ or {})


def bound(checkout: Path, files: dict[str, str], **more: Any) -> BackendConfig:
    tree = tree_of(files)
    assert tree.problems == ()
    document = tree.resources[0]
    config = tree.providerconfig(document.kind, document.provider_config or "")
    return bind(document, config, checkout, manifest=tree.manifest(document.kind), **more)


def changed(document: ResourceDocument, **fields: Any) -> ResourceDocument:
    """A document that no tree would have let through."""
    return document.model_copy(update=fields)


def test_a_module_becomes_a_terraform_config_with_absolute_paths(checkout: Path, tmp_path: Path) -> None:
    text = resource(
        "net",
        more="""
        path: stacks/net
        spec: {workspace: prod, var_file: ../shared.tfvars, max_removals: 3, lock_timeout: 2m, dry_run: on}
        """,
    )
    config = bound(checkout, {"x.yaml": text}, home=tmp_path / "home")
    assert config == TerraformConfig(
        workdir=checkout / "stacks/net",
        var_file=checkout / "stacks/shared.tfvars",
        workspace="prod",
        max_removals=3,
        lock_timeout_seconds=120,
        dry_run=True,
        state_dir=tmp_path / "home",
    )


def test_opentofu_is_bound_like_terraform(checkout: Path) -> None:
    config = bound(checkout, {"x.yaml": resource("net", "opentofu", "path: stacks/net")})
    assert config == OpenTofuConfig(workdir=checkout / "stacks/net")


def test_without_a_path_the_repository_itself_is_the_folder(checkout: Path) -> None:
    config = bound(checkout, {"x.yaml": resource("net")})
    assert isinstance(config, TerraformConfig)
    assert config.workdir == checkout


def test_a_spec_overrides_its_providerconfig_map_by_map(checkout: Path) -> None:
    provider = """
        type: providerconfig
        kind: terraform
        name: aws
        config:
          env: {AWS_REGION: eu-west-1, AWS_MAX_ATTEMPTS: 3}
          backend_config: {bucket: tf, encrypt: true, max_retries: 5}
          variables: {tags: {team: infra, env: dev}, zones: [a, b]}
          workspace: dev
        """
    spec = "{workspace: prod, variables: {tags: {env: prod}, zones: [c]}}"
    config = bound(
        checkout, {"c.yaml": provider, "x.yaml": resource("net", more=f"provider_config: aws\nspec: {spec}")}
    )
    assert isinstance(config, TerraformConfig)
    assert config.env == {"AWS_REGION": "eu-west-1", "AWS_MAX_ATTEMPTS": "3"}
    assert config.backend_config == {"bucket": "tf", "encrypt": "true", "max_retries": "5"}
    assert config.variables == {"tags": {"team": "infra", "env": "prod"}, "zones": ["c"]}
    assert config.workspace == "prod"


@pytest.mark.parametrize(
    ("inventory", "expected"), [("inventory", "ansible/inventory"), ("inventory/hosts", "ansible/inventory/hosts")]
)
def test_a_playbook_and_its_inventory_lie_in_the_documents_folder(
    checkout: Path, inventory: str, expected: str
) -> None:
    spec = f"path: ansible\nspec: {{playbook: site.yml, inventory: {inventory}, extra_vars: {{a: [1]}}, limit: web}}"
    config = bound(checkout, {"x.yaml": resource("site", "ansible", spec)})
    assert config == AnsibleConfig(
        playbook=checkout / "ansible/site.yml", inventory=checkout / expected, extra_vars={"a": [1]}, limit="web"
    )


def test_an_inventory_that_ends_in_a_comma_stays_a_list_of_hosts(checkout: Path) -> None:
    spec = "path: ansible\nspec: {playbook: site.yml, inventory: 'web1,web2,', destroy_playbook: site.yml}"
    config = bound(checkout, {"x.yaml": resource("site", "ansible", spec)})
    assert isinstance(config, AnsibleConfig)
    assert config.inventory == "web1,web2,"
    assert config.destroy_playbook == checkout / "ansible/site.yml"


def test_a_declared_kind_gets_its_scripts_spec_and_environment(checkout: Path) -> None:
    files = {
        "k.yaml": SHELL,
        "c.yaml": "type: providerconfig\nkind: shell\nname: c\nconfig: {env: {LANG: C}, say: nothing, times: 2}",
        "x.yaml": resource("x", "shell", "path: stacks\nprovider_config: c\nspec: {say: hello}"),
    }
    assert bound(checkout, files) == DeclaredConfig(
        declared_kind="shell",
        scripts=Scripts(apply="exit 3", outputs="echo"),
        spec={"say": "hello", "times": 2},
        env={"LANG": "C"},
        workdir=checkout / "stacks",
        timeout_seconds=90,
    )


def test_secrets_are_resolved_here_in_all_places_that_may_hold_them(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "db").write_text("hunter2\n")
    env = "{AWS_SESSION_TOKEN: 'env:GITOPS_SECRET_T'}"
    files = {
        "c.yaml": f"type: providerconfig\nkind: terraform\nname: c\nconfig: {{env: {env}}}",
        "x.yaml": resource(
            more="""
            provider_config: c
            spec:
              variables: {db: {password: "file:db", list: ["file:db", plain]}}
              backend_config: {token: "env:GITOPS_SECRET_T"}
            """
        ),
    }
    reader = secrets(tmp_path, {"GITOPS_SECRET_T": "t0ken"})
    config = bound(checkout, files, secrets=reader)
    assert isinstance(config, TerraformConfig)
    assert config.variables == {"db": {"password": "hunter2", "list": ["hunter2", "plain"]}}
    assert config.backend_config == {"token": "t0ken"}
    assert config.env == {"AWS_SESSION_TOKEN": "t0ken"}
    assert reader.redactor.text("hunter2 t0ken") == "*** ***"


def test_secrets_of_playbooks_and_declared_kinds_are_resolved_too(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "db").write_text("hunter2")
    reader = secrets(tmp_path)
    play = "path: ansible\nspec: {playbook: site.yml, inventory: 'h,', extra_vars: {db_password: 'file:db'}}"
    site = bound(checkout, {"x.yaml": resource("site", "ansible", play)}, secrets=reader)
    assert isinstance(site, AnsibleConfig)
    assert site.extra_vars == {"db_password": "hunter2"}
    files = {"k.yaml": SHELL, "x.yaml": resource("x", "shell", "spec: {say: 'file:db', deep: [{er: 'file:db'}]}")}
    shell = bound(checkout, files, secrets=reader)
    assert isinstance(shell, DeclaredConfig)
    assert shell.spec == {"say": "hunter2", "deep": [{"er": "hunter2"}]}


def test_a_secret_that_is_not_here_is_an_error_that_names_the_reference(checkout: Path, tmp_path: Path) -> None:
    files = {"x.yaml": resource(more="spec: {variables: {password: 'file:nowhere'}}")}
    with pytest.raises(SecretError, match="secret 'file:nowhere': No such file"):
        bound(checkout, files, secrets=secrets(tmp_path))
    with pytest.raises(SecretError, match="set GITOPS_SECRETS_DIR"):
        bound(checkout, files)


def only(text: str) -> ResourceDocument:
    tree = tree_of({"gitops/x.yaml": text})
    assert tree.problems == ()
    return tree.resources[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "stacks/out"}, "'path': 'stacks/out' leaves the repository"),
        ({"path": "stacks/loop"}, "'path': 'stacks/loop'"),
        ({"path": "stacks/git"}, "'path': 'stacks/git' leads into git's own folder"),
        ({"path": ".."}, "'path': '..' leaves the repository"),
        ({"path": "/etc"}, "'path': '/etc' leaves the repository"),
        ({"path": "stacks/nowhere"}, "'path': 'stacks/nowhere' is not a folder of the repository at this revision"),
        ({"path": "stacks/net/main.tf"}, "'path': 'stacks/net/main.tf' is not a folder of the repository"),
        ({"spec": {"var_file": "stacks/out.tfvars"}}, "'spec.var_file': 'stacks/out.tfvars' leaves the repository"),
        ({"spec": {"var_file": "stacks/out/x.tfvars"}}, "'spec.var_file': 'stacks/out/x.tfvars' leaves the repository"),
        ({"spec": {"var_file": "../x"}}, "'spec.var_file': '../x' leaves the repository"),
        ({"spec": {"var_file": "nowhere"}}, "'spec.var_file': 'nowhere' is not in the repository at this revision"),
        ({"spec": {"workspce": "x"}}, "unknown field 'workspce'"),
        ({"spec": {"variables": {"password": "hunter2"}}}, "'spec.variables.password' holds a secret in clear"),
        ({"provider_config": "aws"}, "provider config 'aws' of kind 'terraform' is missing"),
        ({"kind": "chef"}, "the manifest of kind 'chef' is missing"),
    ],
)
def test_what_cannot_be_bound_is_an_error_that_names_the_document(
    checkout: Path, fields: dict[str, Any], message: str
) -> None:
    document = changed(only(resource()), **fields)
    with pytest.raises(SpecError) as caught:
        bind(document, None, checkout)
    assert str(caught.value).startswith(f"gitops/x.yaml:1: {message}")
    assert "hunter2" not in str(caught.value)


def test_a_symlink_inside_the_repository_may_be_followed(checkout: Path) -> None:
    config = bind(changed(only(resource()), path="stacks/alias"), None, checkout)
    assert isinstance(config, TerraformConfig)
    assert config.workdir == checkout / "stacks/alias"


def test_paths_are_absolute_also_where_the_checkout_is_not(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout.parent)
    config = bind(only(resource()), None, Path("checkout"))
    assert isinstance(config, TerraformConfig)
    assert config.workdir == checkout


def test_a_kind_that_is_not_built_is_not_bound(checkout: Path) -> None:
    with pytest.raises(NotBuiltError, match=r"gitops/x\.yaml:1: kind 'pulumi' is not built in this version"):
        bind(changed(only(resource()), kind="pulumi"), None, checkout)


def test_documents_that_do_not_belong_together_are_refused(checkout: Path) -> None:
    tree = tree_of(
        {
            "a.yaml": "type: providerconfig\nkind: ansible\nname: aws",
            "b.yaml": "type: providerconfig\nkind: terraform\nname: other",
            "c.yaml": "type: providerconfig\nkind: terraform\nname: aws",
            "k.yaml": SHELL,
            "x.yaml": resource(more="provider_config: aws"),
        }
    )
    document = tree.resources[0]
    wrong: list[tuple[ProviderConfigDocument | None, ManifestDocument | None]] = [
        (tree.providerconfigs[0], None),
        (tree.providerconfigs[1], None),
        (None, None),
        (tree.providerconfigs[2], tree.manifests[0]),
    ]
    for config, manifest in wrong:
        with pytest.raises(SpecError, match=r"^x\.yaml:1: "):
            bind(document, config, checkout, manifest=manifest)
    assert isinstance(bind(document, tree.providerconfigs[2], checkout), TerraformConfig)


def test_no_message_shows_a_secret_that_was_resolved(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "db").write_text("hunter2")
    document = changed(
        only(resource()), spec={"variables": {"password": "file:db"}, "max_removals": "file:db", "workspace": "a b"}
    )
    with pytest.raises(SpecError) as caught:
        bind(document, None, checkout, secrets=secrets(tmp_path))
    assert "hunter2" not in str(caught.value)
