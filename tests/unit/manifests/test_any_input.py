"""Whatever lies in a repository, reading it ends in documents and typed problems, never in an exception."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_reconciler.manifests.documents import from_record, to_record
from gitops_reconciler.manifests.parsing import parse
from gitops_reconciler.manifests.problems import UnreadableError
from gitops_reconciler.manifests.tree import Tree, read_tree

RESOURCE = {
    "type": "resource",
    "kind": "terraform",
    "name": "network",
    "path": "stacks/network",
    "interval": "10m",
    "labels": {"env": "prod"},
    "provider_config": "aws",
    "metadata": {},
    "suspend": False,
    "spec": {"workspace": "prod", "variables": {"cidr": "10.0.0.0/8"}, "max_removals": 1},
}
SHELL = {
    "type": "resource",
    "kind": "shell",
    "name": "hello",
    "repo": "https://git.example.com/a.git",
    "branch": "main",
    "cron": "0 3 * * *",
    "time_zone": "Europe/Berlin",
    "timeout": 60,
    "pool": "custom",
    "spec": {"say": "hello", "list": [1, 2]},
}
PLAYBOOK = {
    "type": "resource",
    "kind": "ansible",
    "name": "site",
    "spec": {"playbook": "site.yml", "inventory": "web,", "extra_vars": {"a": 1}, "limit": "web"},
}
MANIFEST = {
    "type": "manifest",
    "kind": "shell",
    "schema": {
        "type": "object",
        "required": ["say"],
        "properties": {"say": {"type": "string", "pattern": "^[a-z]+$"}, "list": {"$ref": "#/$defs/list"}},
        "$defs": {"list": {"type": "array", "items": {"type": "integer"}}},
    },
    "scripts": {"apply": "exit 3", "destroy": "exit 0"},
    "timeout": "60s",
}
PROVIDER = {
    "type": "providerconfig",
    "kind": "terraform",
    "name": "aws",
    "config": {"env": {"AWS_REGION": "eu-west-1"}, "backend_config": {"bucket": "tf"}},
}
SCOPE = {"app": "web", "ignore": ["*.tmp.yaml"], "defaults": {"interval": "1h", "labels": {"a": "b"}}, "prune": False}
FILES = {
    "gitops/aws.json": PROVIDER,
    "gitops/gitops.yaml": SCOPE,
    "gitops/hello.json": SHELL,
    "gitops/network.json": RESOURCE,
    "gitops/shell.yml": MANIFEST,
    "gitops/site.yaml": PLAYBOOK,
}

WORDS = st.sampled_from(
    ["", "type", "kind", "name", "$ref", "#", "#/$defs/a", "pattern", "(", "off", "-", "..", "/", "a/../..", "file:x",
     "env:GITOPS_SECRET_A", "password", "1h", "99999999999999999999d", "{{ a }}", "\0", "\ud800", "é", "a\nb", "<<"]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
YAML_SOUP = st.text(alphabet=st.sampled_from("ab01:-?[]{},&*!|>'\"%@`#~<.= \n\t\\ué\u2028\ufeff\x85"), max_size=80)


def checked(tree: Tree) -> Tree:
    """Whatever was found can be printed, stored and read back."""
    for problem in tree.problems:
        assert problem.line >= 1
        assert problem.column >= 1
        text = str(problem)
        text.encode()
        assert text.isprintable(), text
    for warning in tree.warnings:
        str(warning).encode()
    for document in tree.documents:
        assert from_record(json.loads(json.dumps(to_record(document)))) == document
    return tree


@given(data=st.binary(max_size=200) | YAML_SOUP.map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(deadline=None, max_examples=400, database=None)
def test_any_bytes_in_any_file_become_a_document_or_a_problem(data: bytes) -> None:
    names = ("a.yaml", "b.json", "sub/gitops.yaml", "sub/c.YML")
    checked(read_tree(dict.fromkeys(names, data)))


@given(data=st.data())
@settings(deadline=None, max_examples=150, database=None)
def test_any_value_in_any_place_of_a_good_tree_becomes_a_document_or_a_problem(data: st.DataObject) -> None:
    files = json.loads(json.dumps(FILES))
    for _ in range(data.draw(st.integers(1, 3))):
        spoil(files[data.draw(st.sampled_from(sorted(files)))], data)
    checked(read_tree({path: json.dumps(value).encode() for path, value in files.items()}))


def spoil(value: Any, data: st.DataObject) -> None:
    """Put something somewhere into a value."""
    while isinstance(value, dict | list) and value:
        keys = sorted(value) if isinstance(value, dict) else list(range(len(value)))
        key = data.draw(st.sampled_from(keys))
        inner: Any = value[key]
        if not (isinstance(inner, dict | list) and inner) or data.draw(st.booleans()):
            break
        value = inner
    else:
        return
    if isinstance(value, dict) and data.draw(st.booleans()):
        key = data.draw(WORDS | st.text(max_size=8))
    value[key] = data.draw(VALUES)


@given(name=st.text(max_size=40), data=st.sampled_from([b"type: resource\nkind: terraform\nname: a\n", b":"]))
@settings(deadline=None, max_examples=200, database=None)
def test_any_file_name_becomes_a_document_or_a_problem(name: str, data: bytes) -> None:
    checked(read_tree({f"{name}.yaml": data, f"{name}/x.json": b"{", f"{name}/gitops.yaml": b"app: a"}))


@given(value=st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
@settings(deadline=None, max_examples=150, database=None)
def test_json_is_read_as_it_is_written_and_yaml_reads_it_alike(value: dict[str, Any]) -> None:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        return
    try:
        parsed = parse(text.encode(), is_json=True)
    except UnreadableError:
        return
    assert parsed.value == value
    try:
        assert parse(text.encode(), is_json=False).value == value
    except UnreadableError as error:
        # Of JSON, YAML has neither escaped surrogate pairs nor keys of more than 1,024 characters.
        assert "not valid YAML" in str(error)  # noqa: PT017  # either way is right
