"""JSON Schema both ways: what a manifest says about the specs of its kind, and what editors may know of ours.

A schema comes from a tree, so it gets no network, no endless recursion and no regular expression that can run away:
references stay inside the schema, and patterns are those of Rust's `regex` (no look-around, no back-references).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from pydantic import StringConstraints, TypeAdapter
from pydantic import ValidationError as NoMatchError
from pydantic_core import SchemaError as PatternError
from referencing import Registry
from referencing.exceptions import Unresolvable

from gitops_reconciler.manifests.problems import Complaint, Where, field_name, listed, shortened, shown, unknown_field
from gitops_reconciler.manifests.specs import SPECS
from gitops_reconciler.manifests.written import (
    NOT_BUILT,
    TYPES,
    TYPES_NOT_BUILT,
    Written,
    WrittenManifest,
    WrittenProviderConfig,
    WrittenReactorBinding,
    WrittenResource,
    WrittenScope,
)

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_extend: Final[Any] = extend  # the stubs leave it untyped
_MOST_REFERENCES = 10_000
_MOST_COMPLAINTS = 10
_REFUSED = frozenset({"$dynamicRef", "$recursiveRef", "patternProperties"})
_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords that hold values, not schemas."""


class SpecSchema:
    """What a manifest's `schema` lets the specs of its kind be."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._references = 0
        validator: Any = _extend(Draft202012Validator, {"pattern": _pattern, "$ref": self._reference})
        self._validator = validator(
            dict(schema), registry=Registry(), format_checker=Draft202012Validator.FORMAT_CHECKER
        )

    def complaints(self, spec: Mapping[str, Any], where: Where) -> list[Complaint]:
        """Return what is wrong with a spec; its first few faults."""
        self._references = 0
        found: dict[str, Complaint] = {}
        try:
            for error in self._validator.iter_errors(spec):
                for complaint in _complaints(error, where):
                    found.setdefault(complaint.message, complaint)
                if len(found) >= _MOST_COMPLAINTS:
                    break
        except (RecursionError, OverflowError):
            return [Complaint(where=where, message="the schema of its kind refers to itself without end")]
        except Unresolvable as error:
            message = f"the schema of its kind refers to what is not there: {shown(error.ref)}"
            return [Complaint(where=where, message=message)]
        return list(found.values())

    def _reference(self, validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        self._references += 1
        if self._references > _MOST_REFERENCES:
            raise RecursionError
        yield from Draft202012Validator.VALIDATORS["$ref"](validator, reference, instance, schema) or ()


def schema_complaints(schema: Mapping[str, Any], where: Where) -> list[Complaint]:
    """Return what is wrong with a schema itself."""
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        place = (*where, *error.absolute_path)
        message = f"'{field_name(place)}': {shown(error.instance)} is no valid JSON Schema here ({_short(error)})"
        return [Complaint(where=place, message=message)]
    except (RecursionError, OverflowError):
        return [Complaint(where=where, message=f"'{field_name(where)}': no valid JSON Schema: a limit is exceeded")]
    return list(_unsupported(schema, where))


def _unsupported(schema: Any, where: Where) -> Iterator[Complaint]:
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from _unsupported(item, (*where, index))
    elif isinstance(schema, Mapping):
        for key, value in schema.items():
            message = _why_unsupported(key, value)
            if message:
                place = (*where, key)
                yield Complaint(where=place, message=f"'{field_name(place)}': {message}", is_about_key=True)
            elif key not in _DATA:
                yield from _unsupported(value, (*where, key))


def _why_unsupported(key: str, value: Any) -> str:
    if key in _REFUSED and isinstance(value, str | Mapping):
        return "is not supported here"
    if not isinstance(value, str):
        return ""
    if key == "$schema" and value.rstrip("#") != DIALECT:
        return f"only {DIALECT} is supported"
    if key == "$ref" and not value.startswith("#"):
        return "may only refer to a place in the same schema (#/$defs/…)"
    if key == "pattern":
        try:
            _compiled(value)
        except PatternError:
            return f"{shown(value)} is no regular expression without look-around and back-references"
    return ""


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    try:
        _compiled(pattern).validate_python(instance)
    except NoMatchError:
        yield ValidationError("does not match")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> TypeAdapter[str]:
    """Return a matcher whose time is linear in the text."""
    return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])


def _complaints(error: ValidationError, where: Where) -> Iterator[Complaint]:
    """Say one fault of a spec in our words, without the values around it."""
    place = (*where, *error.absolute_path)
    writer = _WRITERS.get(str(error.validator))
    rule: Any = error.validator_value
    schema: Any = error.schema
    if error.validator == "required" and isinstance(error.instance, Mapping):
        for missing in rule:
            if missing not in error.instance:
                yield Complaint(where=place, message=f"missing field '{field_name((*place, missing))}'")
    elif error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        allowed = list(schema.get("properties", {}))
        for extra in error.instance:
            if extra not in allowed:
                yield Complaint(where=(*place, extra), message=unknown_field(extra, allowed), is_about_key=True)
    else:
        text = writer(error) if writer else f"does not fit its kind's schema ({_short(error)})"
        yield Complaint(where=place, message=f"'{field_name(place)}' {text}")


def _type_words(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    return f"must be {' or '.join(wanted) if isinstance(wanted, list) else wanted}, not {shown(error.instance)}"


def _enum_words(error: ValidationError) -> str:
    allowed: Any = error.validator_value
    return f"must be one of: {listed(shortened(str(value)) for value in allowed)}, not {shown(error.instance)}"


_WRITERS: Final[dict[str, Callable[[ValidationError], str]]] = {
    "type": _type_words,
    "enum": _enum_words,
    "const": lambda error: f"must be {shown(error.validator_value)}, not {shown(error.instance)}",
    "pattern": lambda error: f"must match {shown(error.validator_value)}, not {shown(error.instance)}",
}


def _short(error: ValidationError | SchemaError) -> str:
    value = error.validator_value
    return (
        f"{error.validator}: {shown(value)}" if not isinstance(value, dict | list) else shortened(str(error.validator))
    )


def spec_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of the specs of a built-in kind, for editors.

    Raises:
        KeyError: there is no such kind.

    """
    schema = _editor_schema(SPECS[kind])
    # Each field may come from a providerconfig instead.
    schema.pop("required", None)
    return schema


def document_schema(name: str, declared: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a document type, or of `scope` files, for editors.

    `declared` are the schemas of kinds that manifests declare.

    Raises:
        KeyError: there is no such type, or it is not built.

    """
    schema = _editor_schema(_WRITTEN[name])
    for later in NOT_BUILT.get(name, ()):
        del schema["properties"][later]
    if name == "resource":
        specs = {kind: spec_schema(kind) for kind in SPECS} | {kind: dict(it) for kind, it in (declared or {}).items()}
        schema["properties"]["kind"] = {"enum": sorted(specs)}
        schema["allOf"] = [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"spec": spec}}}
            for kind, spec in sorted(specs.items())
        ]
    return {"$schema": DIALECT, **schema}


def _editor_schema(model: type[Written]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


_WRITTEN: Final[dict[str, type[Written]]] = {
    "manifest": WrittenManifest,
    "providerconfig": WrittenProviderConfig,
    "reactorbinding": WrittenReactorBinding,
    "resource": WrittenResource,
    "scope": WrittenScope,
}
BUILT_TYPES: Final = tuple(name for name in TYPES if name in _WRITTEN and name not in TYPES_NOT_BUILT)
