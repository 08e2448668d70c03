import hashlib

import pytest

from gitops_reconciler.manifests.identity import canonical_json, content_hash, document_id, explicit_id
from tests.support.trees import problems_of, resource, tree_of


@pytest.mark.req("R4.25")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("projects/demo-app/aws/development/vpc/demo-vpc.json", "18248a88-1147-5763-9070-7841a14ed241"),
        ("infrastructures/demo-vpc/grid.json", "17d1e3a3-5dfb-5305-a3cc-8d9d4e212eda"),
        ("aws/development/vpc/demo-vpc.json", "22a7a803-e115-5dfa-828c-aec725539639"),
    ],
)
def test_the_id_of_a_document_is_the_uuid_of_its_path(path: str, expected: str) -> None:
    assert document_id(path) == expected
    tree = tree_of({path: '{"type": "resource", "kind": "terraform", "name": "vpc"}'})
    assert [document.origin.id for document in tree.documents] == [expected]


def test_beyond_the_default_source_the_id_is_that_of_source_and_path() -> None:
    files = {"a.yaml": resource()}
    other = tree_of(files, source="edge").resources[0]
    assert other.origin.id == document_id("edge:a.yaml")
    assert other.origin.id != tree_of(files).resources[0].origin.id
    assert other.target == "edge/x"


@pytest.mark.req("R4.26")
def test_ids_depend_on_nothing_but_the_tree() -> None:
    files = {f"gitops/{n}.yaml": resource(f"x{n}") for n in range(5)}
    again = dict(reversed(files.items()))
    ids = [document.origin.id for document in tree_of(files).documents]
    assert ids == [document.origin.id for document in tree_of(again).documents]
    assert len(set(ids)) == 5


@pytest.mark.req("R4.27")
def test_an_explicit_id_is_a_real_uuid_and_its_case_does_not_count() -> None:
    assert explicit_id("3F2504E0-4F89-41D3-9A0C-0305E82C3301") == "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    tree = tree_of({"a.yaml": resource(more="metadata: {id: 3F2504E0-4F89-41D3-9A0C-0305E82C3301}")})
    assert tree.resources[0].origin.id == "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


@pytest.mark.req("R4.27")
@pytest.mark.parametrize(
    "text", ["-" * 36, "3f2504e04f8941d39a0c0305e82c3301", "{3f2504e0-4f89-41d3-9a0c-0305e82c3301}", ""]
)
def test_what_only_looks_like_a_uuid_is_refused(text: str) -> None:
    found = problems_of({"a.yaml": resource(more=f"metadata: {{id: '{text}'}}")})
    assert found == ["a.yaml:4:16: 'metadata.id' must be a UUID, as in 6ba7b810-9dad-41d1-80b4-00c04fd430c8"]


@pytest.mark.req("R4.27")
def test_the_second_file_with_an_explicit_id_is_refused() -> None:
    more = "metadata: {id: 3f2504e0-4f89-41d3-9a0c-0305e82c3301}"
    tree = tree_of({"a.yaml": resource("a", more=more), "b.yaml": resource("b", more=more)})
    assert [document.name for document in tree.resources] == ["a"]
    assert [str(problem) for problem in tree.problems] == [
        "b.yaml:4:16: the id 3f2504e0-4f89-41d3-9a0c-0305e82c3301 is that of a.yaml too"
    ]


def test_the_id_is_asked_for_by_its_place_alone() -> None:
    assert "unknown field 'id'" in problems_of({"a.yaml": resource(more="id: 3f2504e0-4f89-41d3-9a0c-0305e82c3301")})[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, "{}"),
        ({"ok": True, "n": 1}, '{"n":1,"ok":true}'),
        ({"n": 1.0, "ok": True}, '{"n":1,"ok":true}'),
        ({"name": "café"}, '{"name":"café"}'),
        ({"b": 1, "2": 1, "1": 1}, '{"1":1,"2":1,"b":1}'),
        ({"a": [1.5, -0.0, None, {"z": 1, "a": 2}]}, '{"a":[1.5,0,null,{"a":2,"z":1}]}'),
    ],
)
def test_a_value_has_one_canonical_text(value: object, expected: str) -> None:
    assert canonical_json(value) == expected
    assert content_hash(value) == hashlib.sha256(expected.encode()).hexdigest()


def test_layout_order_and_notation_never_change_the_hash_and_content_does() -> None:
    def hash_of(path: str, text: str) -> str:
        return tree_of({path: text}).documents[0].origin.content_hash

    written = hash_of("a.yaml", "type: resource\nkind: terraform\nname: x\nspec: {max_removals: 1}\n")
    assert written == hash_of(
        "a.json", '{"spec": {"max_removals": 1}, "name": "x", "kind": "terraform", "type": "resource"}'
    )
    assert written == hash_of("a.yaml", "# more\nspec:\n  max_removals: 1\nname: 'x'\nkind: terraform\ntype: resource")
    assert written != hash_of("a.yaml", "type: resource\nkind: terraform\nname: x\nspec: {max_removals: 2}\n")
