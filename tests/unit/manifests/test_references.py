import pytest

from gitops_reconciler.errors import Reason
from gitops_reconciler.manifests.references import holds_a_secret, names_a_secret, secret_complaints
from tests.support.trees import problems_of, resource, tree_of

AWS_EXAMPLE = "AKIA" + "IOSFODNN7EXAMPLE"


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "db_password",
        "DB_PASSWORD",
        "dbPassword",
        "passwd",
        "passphrase",
        "token",
        "githubToken",
        "AWS_SESSION_TOKEN",
        "secret",
        "client-secret",
        "secrets",
        "api_key",
        "apiKey",
        "apikey",
        "access_key",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "private_key",
        "ssh.private_key",
        "password2",
        "credentials",
    ],
)
def test_a_key_that_names_a_secret_is_known(key: str) -> None:
    assert names_a_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "password_file",
        "secret_name",
        "secret_arn",
        "token_ttl",
        "key",
        "public_key",
        "keys",
        "compass",
        "tokenizer",
        "region",
    ],
)
def test_a_key_that_only_speaks_of_secrets_is_left_alone(key: str) -> None:
    assert not names_a_secret(key)


@pytest.mark.parametrize(
    "text",
    [
        AWS_EXAMPLE,
        f"key={AWS_EXAMPLE};",
        "-----BEGIN " + "RSA PRIVATE KEY-----\nabc",
        "-----BEGIN " + "PRIVATE KEY-----",
        "ghp_" + "a1" * 18,
        "glpat-" + "a" * 20,
        "github_pat_" + "a" * 22,
        "https://user:hunter2@example.com/x",
    ],
)
def test_a_value_that_has_the_form_of_a_secret_is_known_under_any_key(text: str) -> None:
    assert holds_a_secret(text)
    assert [complaint.where for complaint in secret_complaints({"note": ["x", text]}, ())] == [("note", 1)]


@pytest.mark.parametrize(
    "text", ["https://example.com/a:b@c", "ssh://git@host/x", "AKIA", "ghp_short", "hello", "a@b:c"]
)
def test_harmless_values_are_left_alone(text: str) -> None:
    assert not holds_a_secret(text)


@pytest.mark.parametrize("value", ["file:db", "env:GITOPS_SECRET_DB", "", "{{ vault_db }}", "${DB}", "$DB", True, None])
def test_references_templates_and_nothing_at_all_may_stand_for_a_secret(value: object) -> None:
    assert list(secret_complaints({"password": value}, ())) == []


@pytest.mark.parametrize("value", ["hunter2", 12345, "x{{ a }}", ["hunter2"]])
def test_a_secret_in_clear_is_refused_and_never_shown(value: object) -> None:
    found = list(secret_complaints({"a": {"password": value}}, ("spec",)))
    assert [complaint.reason for complaint in found] == [Reason.INVALID_SPEC]
    assert found[0].message.endswith("holds a secret in clear: refer to it as file:NAME or env:GITOPS_SECRET_NAME")
    assert str(value) not in found[0].message


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("env:HOME", "'x': 'env:HOME' may only name variables that begin with GITOPS_SECRET_"),
        ("file:/etc/passwd", "'x': 'file:/etc/passwd' must be a name below GITOPS_SECRETS_DIR"),
        ("file:../x", "'x': 'file:../x' must be a name below GITOPS_SECRETS_DIR"),
    ],
)
def test_a_reference_that_can_never_be_resolved_is_refused_at_once(reference: str, message: str) -> None:
    assert [complaint.message for complaint in secret_complaints({"x": reference}, ())] == [message]


def test_where_a_field_takes_no_reference_one_is_refused() -> None:
    spec = {"variables": {"deep": ["file:a"]}, "workspace": "file:b"}
    found = [complaint.message for complaint in secret_complaints(spec, ("spec",), {"variables"})]
    assert found == ["'spec.workspace' cannot be a secret reference"]


def test_a_static_key_in_a_document_is_refused_wherever_it_stands() -> None:
    tree = tree_of(
        {
            "a.yaml": resource("a", more="spec: {backend_config: {access_key: hunter2, key: x}}"),
            "b.yaml": resource(
                "b", "ansible", "spec: {playbook: p, inventory: 'h,', extra_vars: {ansible_password: hunter2}}"
            ),
            "c.yaml": "type: providerconfig\nkind: terraform\nname: c\nconfig: {env: {AWS_SECRET_ACCESS_KEY: hunter2}}",
            "d.yaml": "type: manifest\nkind: d\nscripts: {apply: 'curl https://u:hunter2@example.com'}",
            "e.yaml": "type: manifest\nkind: e\nscripts: {apply: 'true'}",
            "f.yaml": resource("f", "e", "spec: {deep: [{token: hunter2}]}"),
            "g.yaml": resource("g", more="repo: https://u:hunter2@example.com/x.git"),
        }
    )
    assert [problem.path for problem in tree.problems] == ["a.yaml", "b.yaml", "c.yaml", "d.yaml", "f.yaml", "g.yaml"]
    assert "hunter2" not in "".join(str(problem) for problem in tree.problems)
    assert [document.origin.path for document in tree.documents] == ["e.yaml"]


def test_a_spec_with_a_secret_in_clear_is_not_checked_further_so_that_nothing_shows_it() -> None:
    kind = "type: manifest\nkind: e\nschema: {properties: {token: {enum: [a]}}}\nscripts: {apply: 'true'}"
    found = problems_of({"e.yaml": kind, "f.yaml": resource("f", "e", "spec: {token: hunter2}")})
    assert len(found) == 1
    assert "hunter2" not in found[0]
