"""The tree as a whole: golden trees (`trees/<name>/tree` beside `expected.json`), ownership, what a bad file stops."""

import json
from pathlib import Path
from typing import Any

import pytest

from gitops_reconciler.errors import DocumentError, Reason
from gitops_reconciler.manifests.documents import to_record
from gitops_reconciler.manifests.loading import read_folder
from gitops_reconciler.manifests.tree import read_tree
from tests.support.trees import problems_in, problems_of, resource, tree_of

TREES = Path(__file__).parent / "trees"

SHELL = "type: manifest\nkind: shell\nscripts: {apply: 'exit 3'}"


def rendered(case: Path) -> dict[str, Any]:
    tree = read_tree(read_folder(case / "tree", prefix="gitops"))
    return {
        "documents": [to_record(document) for document in tree.documents],
        "applicable": [document.origin.path for document in tree.applicable],
        "problems": [str(problem) for problem in tree.problems],
        "warnings": [str(warning) for warning in tree.warnings],
        "frozen": sorted(tree.frozen),
        "held": sorted(tree.held),
    }


@pytest.mark.req("R1.1", "R1.16")
@pytest.mark.parametrize("case", sorted(path.name for path in TREES.iterdir()))
def test_a_golden_tree_is_read_as_it_was_judged_right(case: str) -> None:
    assert rendered(TREES / case) == json.loads((TREES / case / "expected.json").read_text())


@pytest.mark.req("R1.4")
def test_a_file_without_a_type_is_an_error_that_names_it_and_all_types() -> None:
    tree = tree_of({"gitops/good.yaml": resource(), "gitops/bad.yaml": "name: x"})
    with pytest.raises(DocumentError) as caught:
        tree.check("gitops")
    assert str(caught.value).startswith(
        "gitops/bad.yaml:1:1: no 'type' (must be one of: manifest, providerconfig, reactorbinding, resource): every "
    )


@pytest.mark.req("R1.5")
@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("widget", "unknown object type 'widget' (must be one of: manifest, providerconfig, reactorbinding, resource)"),
        ("resources", "unknown object type 'resources' (did you mean 'resource'? must be one of: "),
        ("Resource", "unknown object type 'Resource' (did you mean 'resource'? must be one of: "),
        ("cluster", "cannot sync object type 'cluster'"),
        ("[a]", "unknown object type a list (must be one of: "),
        ("5", "unknown object type 5 (must be one of: "),
        ("", "unknown object type null (must be one of: "),
    ],
)
def test_a_type_that_is_none_is_refused_while_reading(written: str, message: str) -> None:
    found = problems_in(f"# first\ntype: {written}\n")
    assert len(found) == 1
    assert found[0].split(": ", 1)[1].startswith(message)
    assert found[0].startswith("2:")


def test_a_type_that_is_not_built_is_refused_with_that_reason() -> None:
    tree = tree_of({"x.yaml": "type: reactorbinding\nname: page\non: [failed]\n"})
    assert [(problem.message, problem.reason) for problem in tree.problems] == [
        ("type 'reactorbinding' is not built in this version (it comes later)", Reason.NOT_BUILT)
    ]


@pytest.mark.parametrize("field", ["watch", "depends_on", "inputs", "retry_interval"])
@pytest.mark.parametrize("value", ["", "[]", "x"])
def test_a_field_that_is_not_built_is_refused_and_never_ignored(field: str, value: str) -> None:
    tree = tree_of({"x.yaml": resource(more=f"{field}: {value}\n")})
    assert [str(problem) for problem in tree.problems] == [
        f"x.yaml:4:1: '{field}' is not built in this version (it comes later)"
    ]
    assert tree.problems[0].reason is Reason.NOT_BUILT


@pytest.mark.parametrize("kind", ["pulumi", "cloudformation", "compose", "pi", "resources"])
def test_a_kind_that_is_not_built_is_refused_with_what_there_is(kind: str) -> None:
    tree = tree_of({"x.yaml": resource(kind=kind), "shell.yaml": SHELL})
    message = "is not built in this version (it comes later; there are: ansible, opentofu, shell, terraform)"
    assert [str(problem) for problem in tree.problems] == [f"x.yaml:2:7: kind '{kind}' {message}"]
    assert tree.problems[0].reason is Reason.NOT_BUILT


def test_an_unknown_kind_says_where_what_and_what_is_allowed() -> None:
    text = "type: resource\nname: x\nlabels:\n  a: b\n\nspec: {}\nkind: terrafrom\n"
    message = "unknown kind 'terrafrom' (did you mean 'terraform'? must be one of: ansible, opentofu, terraform)"
    assert problems_of({"gitops/network/x.yaml": text}) == [f"gitops/network/x.yaml:7:7: {message}"]


@pytest.mark.req("R1.6")
def test_the_content_says_what_a_file_is_and_its_name_nothing() -> None:
    tree = tree_of({"resource-x.json": json.dumps({"type": "manifest", "kind": "shell", "scripts": {"apply": "true"}}),
                    "shell.kind.json": json.dumps({"type": "resource", "kind": "shell", "name": "x"})})  # fmt: skip
    assert tree.problems == ()
    assert [(document.type, document.origin.path) for document in tree.documents] == [
        ("manifest", "resource-x.json"),
        ("resource", "shell.kind.json"),
    ]


@pytest.mark.req("R1.22")
def test_documents_come_by_type_and_then_by_path_whatever_the_files_are_called() -> None:
    files = {
        "a.yaml": resource("a", "shell"),
        "b.yaml": resource("b"),
        "c/z.yaml": resource("cz"),
        "y.yaml": "type: providerconfig\nkind: shell\nname: c",
        "z.yaml": SHELL,
    }
    expected = ["z.yaml", "y.yaml", "a.yaml", "b.yaml", "c/z.yaml"]
    assert [document.origin.path for document in tree_of(files).documents] == expected
    backwards = dict(reversed(files.items()))
    assert [document.origin.path for document in tree_of(backwards).documents] == expected


@pytest.mark.req("R1.8")
def test_a_file_that_cannot_be_parsed_is_named_and_yaml_reads_like_json() -> None:
    found = problems_of({"a.yaml": "a: [", "b.json": "{", "c.yaml": resource("c") + "---\n" + resource("d")})
    assert found[0].startswith("a.yaml:2:1: not valid YAML: ")
    assert found[1].startswith("b.json:1:2: not valid JSON: ")
    assert found[2] == "c.yaml:4:1: the file holds several documents: put each into a file of its own"
    yaml = tree_of({"x.yaml": "type: resource\nkind: terraform\nname: x\nspec: {max_removals: 1}"}).resources[0]
    as_json = tree_of({"x.yaml": '{"type": "resource", "kind": "terraform", "name": "x", "spec": {"max_removals": 1}}'})
    assert as_json.resources[0] == yaml


@pytest.mark.req("R1.13")
def test_only_resources_have_a_scope() -> None:
    tree = tree_of({"web/gitops.yaml": "app: web", "web/shell.yaml": SHELL, "web/x.yaml": resource(kind="shell"),
                    "web/c.yaml": "type: providerconfig\nkind: shell\nname: c"})  # fmt: skip
    assert {document.origin.path: document.origin.scope for document in tree.documents} == {
        "web/c.yaml": "",
        "web/shell.yaml": "",
        "web/x.yaml": "web",
    }
    assert tree.warnings == ()


@pytest.mark.req("R1.14")
def test_a_resource_without_a_scope_is_taken_and_warned_of() -> None:
    tree = tree_of({"x.yaml": resource(), "web/gitops.yaml": "app: web", "web/y.yaml": resource("y")})
    assert [str(warning) for warning in tree.warnings] == [
        "x.yaml: has no gitops.yaml above it: it is applied, but never pruned"
    ]
    assert [document.is_prunable for document in tree.resources] == [True, False]
    tree.check(".")


@pytest.mark.req("R1.16", "R1.17")
def test_a_scope_stamps_its_app_over_whatever_stands_there() -> None:
    text = resource(more="labels: {team: x, gitops-reconciler/app: WRONG}")
    tree = tree_of({"web/gitops.yaml": "app: web", "web/x.yaml": text})
    assert tree.resources[0].labels == {"team": "x", "gitops-reconciler/app": "web"}


def test_nobody_claims_an_app_by_hand() -> None:
    found = problems_in(resource(more="labels: {gitops-reconciler/app: web}"))
    assert found == ["4:10: label 'gitops-reconciler/app' is set by a gitops.yaml above the document, never by hand"]


@pytest.mark.req("R1.18")
@pytest.mark.parametrize("folder", ["web/", ""])
def test_a_resource_has_a_kind_and_a_name_in_and_out_of_a_scope(folder: str) -> None:
    files = {"web/gitops.yaml": "app: web", f"{folder}x.yaml": "type: resource\nspec: {}"}
    assert problems_of(files) == [
        f"{folder}x.yaml:1:1: missing field 'kind'",
        f"{folder}x.yaml:1:1: missing field 'name'",
    ]


@pytest.mark.req("R1.19")
@pytest.mark.parametrize("labels", ["{a: 1}", "{a: true}", "{a: null}", "{a: {b: c}}"])
def test_labels_are_text(labels: str) -> None:
    assert "'labels.a' must be a string, not " in problems_in(resource(more=f"labels: {labels}"))[0]


@pytest.mark.req("R1.21")
@pytest.mark.parametrize("kind", ["terraform", "opentofu"])
def test_a_name_that_two_files_declare_is_an_error_that_names_both(kind: str) -> None:
    tree = tree_of(
        {
            "a/gitops.yaml": "app: a",
            "b/gitops.yaml": "app: b",
            "c/gitops.yaml": "app: c",
            "a/x.yaml": resource("web"),
            "b/y.yaml": resource("web", kind),
            "c/z.yaml": resource("other"),
        }
    )
    assert [str(problem) for problem in tree.problems] == ["b/y.yaml:3:7: name 'web' is declared in a/x.yaml too"]
    # Which of the two is meant nobody knows: neither changes anything.
    assert tree.frozen == {"a", "b"}
    assert [document.origin.path for document in tree.applicable] == ["c/z.yaml"]
    assert tree.keeps(name="web", app="a", scope="a")


def test_the_second_of_two_is_an_error_also_where_the_first_is_invalid() -> None:
    tree = tree_of({"a.yaml": resource("web", more="watch: [x]"), "b.yaml": resource("web")})
    assert tree.resources == ()
    assert [problem.path for problem in tree.problems] == ["a.yaml", "b.yaml"]


def test_a_kind_or_providerconfig_that_is_declared_twice_is_nobodys() -> None:
    tree = tree_of(
        {
            "a.yaml": SHELL,
            "b/gitops.yaml": "app: b",
            "b/b.yaml": SHELL.replace("exit 3", "exit 0"),
            "c.yaml": "type: providerconfig\nkind: terraform\nname: aws",
            "d.yaml": "type: providerconfig\nkind: terraform\nname: aws\nconfig: {workspace: x}",
            "e.yaml": "type: providerconfig\nkind: opentofu\nname: aws",
            "web/gitops.yaml": "app: web",
            "web/x.yaml": resource("x", "shell"),
            "web/y.yaml": resource("y", more="provider_config: aws"),
            "ok/gitops.yaml": "app: ok",
            "ok/z.yaml": resource("z", "opentofu", "provider_config: aws"),
        }
    )
    assert [str(problem) for problem in tree.problems] == [
        "b/b.yaml:2:7: kind 'shell' is declared in a.yaml too",
        "d.yaml:2:7: providerconfig 'aws' of kind 'terraform' is declared in c.yaml too",
        "web/x.yaml:2:7: kind 'shell' is declared in a.yaml, which is invalid or not the only one",
        "web/y.yaml:4:18: provider config 'aws' is declared in c.yaml, which is invalid or not the only one",
    ]
    assert tree.frozen == {"", "b", "web"}
    assert [document.origin.path for document in tree.documents] == ["e.yaml", "ok/z.yaml"]


@pytest.mark.parametrize("kind", ["terraform", "pulumi", "source", "declared", "resources"])
def test_a_manifest_cannot_redeclare_a_kind_of_ours(kind: str) -> None:
    found = problems_in(f"type: manifest\nkind: {kind}\nscripts: {{apply: 'true'}}")
    assert found == [f"2:7: kind '{kind}' is one of our own: choose another name"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: x", "1:1: missing field 'scripts'"),
        ("kind: x\nscripts: {destroy: a}", "3:10: missing field 'scripts.apply'"),
        ("kind: x\nscripts: {apply: ''}", "3:18: 'scripts.apply': string should have at least 1 character, not ''"),
        ("kind: x\nscripts: {apply: [a]}", "3:18: 'scripts.apply' must be a string, not a list"),
        ("kind: x\nscripts: bash", "3:10: 'scripts' must be a map, not 'bash'"),
        ("kind: x\nscripts: {apply: a, plan: b}", "3:21: unknown field 'plan' (allowed: apply, destroy, outputs)"),
        ("kind: x\nscripts: {read: a}", "3:11: 'scripts.read' is not built in this version (it comes later)"),
        ("kind: X\nscripts: {apply: a}", "2:7: 'kind': 'X' is no name"),
        ("kind: x\nscripts: {apply: a}\nschema: true", "4:9: 'schema' must be a map, not true"),
        (
            "kind: x\nscripts: {apply: a}\nschema: {type: objekt}",
            "4:16: 'schema.type': 'objekt' is no valid JSON Schema",
        ),
        ("kind: x\nscripts: {apply: a}\nname: x", "4:1: unknown field 'name' (allowed: kind, metadata, "),
    ],
)
def test_a_wrong_manifest_is_refused(text: str, message: str) -> None:
    found = problems_in(f"type: manifest\n{text}")
    assert len(found) == 1
    assert found[0].startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: chef\nname: x", "2:7: unknown kind 'chef' (must be one of: ansible, opentofu, terraform)"),
        ("kind: terraform", "1:1: missing field 'name'"),
        ("kind: terraform\nname: x\nconfig: {role_arn: a}", "4:10: 'config.role_arn' is not built in this version"),
        ("kind: terraform\nname: x\nconfig: {regoin: a}", "4:10: unknown field 'regoin' (allowed: backend_config, "),
        (
            "kind: terraform\nname: x\nconfig: {max_removals: -1}",
            "4:24: 'config.max_removals': input should be greater",
        ),
        ("kind: terraform\nname: x\nconfig: {env: [a]}", "4:15: 'config.env' must be a map, not a list"),
        ("kind: terraform\nname: x\nconfig: {env: {A: true}}", "4:19: 'config.env.A' must be a string, not true"),
        (
            "kind: terraform\nname: x\nconfig: {env: {GITOPS_X: a}}",
            "4:16: 'config.env': 'GITOPS_X': variables that begin",
        ),
        ("kind: terraform\nname: x\nconfig: {env: {'A=B': a}}", "4:16: 'config.env': 'A=B' is no name of a variable"),
        (
            "kind: ansible\nname: x\nconfig: {inventory: /etc/hosts}",
            "4:21: 'config.inventory': '/etc/hosts' must be a relative",
        ),
    ],
)
def test_a_wrong_providerconfig_is_refused(text: str, message: str) -> None:
    found = problems_in(f"type: providerconfig\n{text}")
    assert len(found) == 1
    assert found[0].startswith(message)


def test_a_providerconfig_may_hold_what_its_kind_requires() -> None:
    files = {
        "c.yaml": "type: providerconfig\nkind: ansible\nname: lab\nconfig: {inventory: 'lab1,', extra_vars: {a: 1}}",
        "x.yaml": resource("x", "ansible", "provider_config: lab\nspec: {playbook: site.yml}"),
        "y.yaml": resource("y", "ansible", "spec: {playbook: site.yml}"),
    }
    assert problems_of(files) == ["y.yaml:4:7: missing field 'spec.inventory'"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("asw", "unknown provider config 'asw' of kind 'terraform' (did you mean 'aws'? there are: aws)"),
        ("lab", "unknown provider config 'lab' of kind 'terraform' (it is one of kind ansible)"),
        ("bad", "provider config 'bad' is declared in bad.yaml, which is invalid or not the only one"),
    ],
)
def test_a_reference_to_a_providerconfig_that_is_not_there_is_refused(config: str, message: str) -> None:
    files = {
        "aws.yaml": "type: providerconfig\nkind: terraform\nname: aws",
        "bad.yaml": "type: providerconfig\nkind: terraform\nname: bad\nconfig: {x: y}",
        "lab.yaml": "type: providerconfig\nkind: ansible\nname: lab",
        "x.yaml": resource(more=f"provider_config: {config}"),
    }
    assert problems_of(files)[-1] == f"x.yaml:4:18: {message}"


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        (
            "terraform",
            "{workspce: x}",
            "unknown field 'workspce' (did you mean 'workspace'? allowed: backend_config, dry_run",
        ),
        ("terraform", "{workspace: '-x'}", "'spec.workspace': string should match pattern"),
        ("terraform", "{workspace: 5}", "'spec.workspace' must be a string, not 5"),
        ("terraform", "{max_removals: '5'}", "'spec.max_removals' must be a whole number, not '5'"),
        ("terraform", "{max_removals: true}", "'spec.max_removals' must be a whole number, not true"),
        ("terraform", "{variables: {a-b: 1}}", "'spec.variables': 'a-b' is no name of a variable"),
        ("terraform", "{var_file: /etc/passwd}", "'spec.var_file': '/etc/passwd' must be a relative path"),
        (
            "terraform",
            "{var_file: ../../x}",
            "'spec.var_file': '../../x' leaves the repository (it is relative to 'path', 'a')",
        ),
        ("terraform", "{var_file: ../.git/config}", "'spec.var_file': '../.git/config' leads into git's own folder"),
        ("terraform", "{lock_timeout: soon}", "'spec.lock_timeout': 'soon' is no duration"),
        ("terraform", "{workdir: x}", "unknown field 'workdir' (allowed: "),
        ("terraform", "{env: {A: b}}", "unknown field 'env' (allowed: "),
        ("terraform", "{binary: sh}", "unknown field 'binary' (allowed: "),
        ("ansible", "{inventory: 'h,'}", "missing field 'spec.playbook'"),
        (
            "ansible",
            "{playbook: a.yml, inventory: '--version,'}",
            "'spec.inventory': must be printable text of one line",
        ),
        ("ansible", "{playbook: a.yml, inventory: ../../h}", "'spec.inventory': '../../h' leaves the repository"),
        ("ansible", "{playbook: ~/a.yml, inventory: 'h,'}", "'spec.playbook': '~/a.yml' must be a relative path"),
        (
            "ansible",
            "{playbook: a.yml, inventory: 'h,', limit: -x}",
            "'spec.limit': must be printable text of one line",
        ),
        (
            "ansible",
            "{playbook: a.yml, inventory: 'h,', extra_vars: []}",
            "'spec.extra_vars' must be a map, not a list",
        ),
    ],
)
def test_a_wrong_spec_is_refused(kind: str, spec: str, message: str) -> None:
    found = problems_in(resource("x", kind, f"path: a\nspec: {spec}"))
    assert len(found) == 1
    assert found[0].split(": ", 1)[1].startswith(message)


def test_a_tree_without_documents_is_an_error_of_its_own() -> None:
    for files in ({}, {"README.md": "x"}, {"web/gitops.yaml": "app: web"}):
        tree = tree_of(files)
        assert tree.file_count == 0
        with pytest.raises(DocumentError) as caught:
            tree.check("gitops/")
        assert str(caught.value) == (
            'no manifests found under gitops/ (expected .json/.yaml/.yml files, each with a "type" field)'
        )


def test_the_command_line_refuses_a_tree_with_any_problem_and_lists_them_all() -> None:
    tree = tree_of({"a.yaml": "x: y", "b.yaml": "type: widget", "c.yaml": resource()})
    with pytest.raises(DocumentError) as caught:
        tree.check("gitops")
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["a.yaml", "b.yaml"]


def test_a_bad_document_freezes_its_own_scope_and_no_other() -> None:
    tree = tree_of(
        {
            "web/gitops.yaml": "app: web",
            "web/bad.yaml": resource("bad", more="watch: [x]"),
            "web/good.yaml": resource("good"),
            "data/gitops.yaml": "app: data",
            "data/x.yaml": resource("x"),
            "y.yaml": resource("y"),
        }
    )
    assert tree.frozen == {"web"}
    assert tree.problems[0].scope == "web"
    assert [document.origin.path for document in tree.applicable] == ["data/x.yaml", "y.yaml"]


@pytest.mark.parametrize(
    ("name", "app", "scope", "expected"),
    [
        ("gone", "web", "web", True),
        ("gone", "web", "somewhere/else", True),
        ("gone", "data", "data", False),
        ("gone", "", "", False),
        ("moved", "data", "data", True),
        ("gone", "old", "old", False),
    ],
)
def test_what_left_a_frozen_scope_or_is_named_in_a_bad_document_stays(
    name: str, app: str, scope: str, expected: bool
) -> None:
    tree = tree_of(
        {
            "web/gitops.yaml": "app: web",
            "web/bad.yaml": resource("moved", more="watch: [x]"),
            "data/gitops.yaml": "app: data",
            "data/x.yaml": resource("x"),
        }
    )
    assert tree.keeps(name=name, app=app, scope=scope) is expected


def test_while_a_scope_file_is_unreadable_no_scope_that_vanished_is_given_up() -> None:
    tree = tree_of({"new/gitops.yaml": "app: [", "new/x.yaml": resource(), "data/gitops.yaml": "app: data"})
    assert tree.keeps(name="x", app="web", scope="old")
    assert tree.keeps(name="y", app="web", scope="new")
    assert not tree.keeps(name="z", app="data", scope="data")
    assert not tree.keeps(name="z", app="", scope="")


def test_a_problem_knows_its_scope_reason_and_place() -> None:
    tree = tree_of({"web/gitops.yaml": "app: web", "web/x.yaml": resource(kind="chef")})
    problem = tree.problems[0]
    assert (problem.path, problem.line, problem.column, problem.scope) == ("web/x.yaml", 2, 7, "web")
    assert problem.reason is Reason.INVALID_DOCUMENT


def test_one_file_is_not_told_more_than_it_can_bear() -> None:
    text = json.dumps({"type": "resource", **{f"field{n}": n for n in range(500)}})
    assert len(problems_of({"x.json": text})) == 20


def test_documents_are_found_by_name() -> None:
    tree = tree_of(
        {"a.yaml": SHELL, "b.yaml": "type: providerconfig\nkind: shell\nname: c", "c.yaml": resource("x", "shell")}
    )
    assert tree.manifest("shell") is tree.manifests[0]
    assert tree.providerconfig("shell", "c") is tree.providerconfigs[0]
    assert tree.resource("x") is tree.resources[0]
    assert tree.manifest("x") is None
    assert tree.providerconfig("terraform", "c") is None
    assert tree.resource("c") is None


@pytest.mark.parametrize(("more", "pool"), [("", "custom"), ("pool: gpu", "gpu")])
def test_the_pool_of_a_declared_kind_is_custom_unless_said(more: str, pool: str) -> None:
    tree = tree_of({"a.yaml": SHELL, "c.yaml": resource("x", "shell", more)})
    assert tree.resources[0].pool == pool
    assert tree.resources[0].is_declared
