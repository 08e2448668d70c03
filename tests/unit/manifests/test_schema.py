import json
from typing import Any

import pytest

from gitops_reconciler.manifests.schema import (
    BUILT_TYPES,
    DIALECT,
    SpecSchema,
    document_schema,
    schema_complaints,
    spec_schema,
)
from gitops_reconciler.manifests.specs import SPECS
from tests.support.trees import problems_of, resource

SAY = {"type": "object", "required": ["say"], "properties": {"say": {"type": "string"}}, "additionalProperties": False}


def faults(schema: dict[str, Any], spec: dict[str, Any]) -> list[str]:
    assert schema_complaints(schema, ("schema",)) == []
    return [complaint.message for complaint in SpecSchema(schema).complaints(spec, ("spec",))]


@pytest.mark.parametrize(
    ("schema", "spec", "expected"),
    [
        (SAY, {"say": "hello"}, []),
        (SAY, {}, ["missing field 'spec.say'"]),
        (SAY, {"say": 5}, ["'spec.say' must be string, not 5"]),
        (SAY, {"say": "a", "sya": 1}, ["unknown field 'sya' (did you mean 'say'? allowed: say)"]),
        (
            {"properties": {"a": {"type": ["integer", "null"]}}},
            {"a": "x"},
            ["'spec.a' must be integer or null, not 'x'"],
        ),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "z"}, ["'spec.a' must be one of: x, y, not 'z'"]),
        ({"properties": {"a": {"const": 1}}}, {"a": 2}, ["'spec.a' must be 1, not 2"]),
        ({"properties": {"a": {"pattern": "^x"}}}, {"a": "y"}, ["'spec.a' must match '^x', not 'y'"]),
        ({"properties": {"a": {"minimum": 3}}}, {"a": 1}, ["'spec.a' does not fit its kind's schema (minimum: 3)"]),
        (
            {"properties": {"a": {"format": "ipv4"}}},
            {"a": "x"},
            ["'spec.a' does not fit its kind's schema (format: 'ipv4')"],
        ),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, ["'spec' does not fit its kind's schema (anyOf)"]),
        (
            {"properties": {"a": {"items": {"type": "integer"}}}},
            {"a": [1, "x"]},
            ["'spec.a[1]' must be integer, not 'x'"],
        ),
        ({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}, {"a": 1}, []),
        ({"$schema": DIALECT, "propertyNames": {"pattern": "^[a-z]$"}}, {"a": 1}, []),
        ({}, {"anything": ["goes"]}, []),
    ],
)
def test_a_spec_is_held_against_the_schema_of_its_kind(
    schema: dict[str, Any], spec: dict[str, Any], expected: list[str]
) -> None:
    assert faults(schema, spec) == expected


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "'schema.type': 'objekt' is no valid JSON Schema here (anyOf)"),
        ({"required": "say"}, "'schema.required': 'say' is no valid JSON Schema here (type: 'array')"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "without look-around and back-references"),
        ({"properties": {"a": {"pattern": "("}}}, "'(' is no valid JSON Schema here (format: 'regex')"),
        ({"properties": {"a": {"pattern": "a{9999999999}"}}}, "'schema': no valid JSON Schema: a limit is exceeded"),
        ({"properties": {"a": {"pattern": "(a{1000}){1000}"}}}, "without look-around and back-references"),
        ({"$ref": "http://127.0.0.1:1/x.json"}, "may only refer to a place in the same schema (#/$defs/…)"),
        ({"$ref": "file:///etc/passwd"}, "may only refer to a place in the same schema (#/$defs/…)"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, f"only {DIALECT} is supported"),
        ({"patternProperties": {"(a+)+$": {}}}, "'schema.patternProperties': is not supported here"),
        ({"allOf": [{"$dynamicRef": "#x"}]}, "'schema.allOf[0].$dynamicRef': is not supported here"),
    ],
)
def test_a_schema_that_is_none_or_reaches_out_is_refused(schema: dict[str, Any], message: str) -> None:
    found = [complaint.message for complaint in schema_complaints(schema, ("schema",))]
    assert len(found) == 1
    assert found[0].endswith(message)


def test_values_inside_a_schema_are_not_taken_for_schemas() -> None:
    assert schema_complaints({"enum": [{"pattern": "("}], "default": {"$ref": "x"}}, ("schema",)) == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#"}, "the schema of its kind refers to itself without end"),
        (
            {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            "the schema of its kind refers to itself without end",
        ),
        ({"$ref": "#/$defs/nowhere"}, "the schema of its kind refers to what is not there: '/$defs/nowhere'"),
    ],
)
def test_a_schema_that_leads_nowhere_is_a_fault_and_not_an_exception(schema: dict[str, Any], message: str) -> None:
    assert faults(schema, {}) == [message]


def test_only_the_first_faults_of_a_spec_are_listed() -> None:
    schema = {"properties": {f"p{n}": {"type": "integer"} for n in range(50)}}
    assert len(faults(schema, {f"p{n}": "x" for n in range(50)})) == 10


def test_a_schema_cannot_run_away() -> None:
    evil = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    assert len(faults(evil, {"a": "a" * 5000 + "!"})) == 1
    doubling: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    doubling["d40"] = {}
    assert faults({"$defs": doubling, "$ref": "#/$defs/d0"}, {}) == [
        "the schema of its kind refers to itself without end"
    ]


def test_a_fault_is_shown_where_it_stands_and_says_when_it_comes_from_the_providerconfig() -> None:
    kind = (
        "type: manifest\nkind: shell\nschema: {required: [a], properties: {a: {type: integer}, b: {type: integer}}}\n"
    )
    files = {
        "kind.yaml": kind + "scripts: {apply: 'true'}",
        "config.yaml": "type: providerconfig\nkind: shell\nname: c\nconfig: {b: x, env: {A: b}}",
        "one.yaml": resource("one", "shell", "provider_config: c\nspec:\n  a: y\n"),
        "two.yaml": resource("two", "shell", "provider_config: c\nspec: {b: 1}\n"),
    }
    assert problems_of(files) == [
        "one.yaml:4:18: 'spec.b' must be integer, not 'x' (from provider config 'c', config.yaml:1)",
        "one.yaml:6:6: 'spec.a' must be integer, not 'y'",
        "two.yaml:5:7: missing field 'spec.a'",
    ]


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_every_built_kind_offers_its_spec_to_editors(kind: str) -> None:
    schema = spec_schema(kind)
    assert set(schema["properties"]) == set(SPECS[kind].model_fields)
    assert schema["additionalProperties"] is False
    assert "required" not in schema
    assert schema_complaints(schema, ()) == []


@pytest.mark.parametrize("name", [*BUILT_TYPES, "scope"])
def test_every_document_type_offers_itself_to_editors(name: str) -> None:
    schema = document_schema(name)
    assert schema_complaints(schema, ()) == []
    json.dumps(schema)
    assert schema["$schema"] == DIALECT


def test_the_schema_for_editors_takes_what_the_reader_takes() -> None:
    schema = SpecSchema(document_schema("resource", {"shell": SAY}))
    good = {"type": "resource", "kind": "shell", "name": "x", "interval": "off", "timeout": "30m", "spec": {"say": "a"}}
    assert schema.complaints(good, ()) == []
    assert schema.complaints({**good, "interval": 60, "timeout": "1h"}, ()) == []
    assert [c.message for c in schema.complaints({**good, "spec": {}}, ())] == ["missing field 'spec.say'"]
    assert [c.message for c in schema.complaints({**good, "kind": "chef"}, ())] != []
    assert [c.message for c in schema.complaints({**good, "watch": []}, ())] != []
    terraform = {**good, "kind": "terraform", "spec": {"workspce": "x"}}
    assert any("unknown field 'workspce'" in c.message for c in schema.complaints(terraform, ()))
