"""From raw bytes to a JSON object, strictly, once the signature is good; every failure is a `MalformedError`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from pydantic_core import from_json

from gitops_services.receiver.base import MalformedError, RawBody

_FORM_FIELDS = 16


def parse_json(raw: RawBody) -> Mapping[str, Any]:
    """Return the object in a JSON body: UTF-8 (a byte order mark is allowed), finite numbers, bounded depth."""
    try:
        document = from_json(raw, allow_inf_nan=False)
    except ValueError:  # the slower parser knows better what is wrong, and takes some oddities that are right
        pass
    else:
        return _object(document)
    try:
        return parse_text(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise MalformedError("the body is not UTF-8") from None


def parse_form(raw: RawBody) -> Mapping[str, Any]:
    """Return the object in the one `payload` of a form."""
    try:
        pairs = parse_qsl(raw.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_FORM_FIELDS)
    except ValueError:  # also what is not UTF-8
        raise MalformedError("the form can't be read") from None
    payloads = [value for name, value in pairs if name == "payload"]
    if len(payloads) != 1:
        raise MalformedError("the form must hold exactly one 'payload'")
    return parse_text(payloads[0])


def parse_text(text: str) -> Mapping[str, Any]:
    """Return the object that a JSON text holds."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # a huge integer is a ValueError, deep nesting a RecursionError
        raise MalformedError("the body is not JSON") from None
    return _object(document)


def _object(document: Any) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise MalformedError("the body is not a JSON object")
    return document


def _refuse_constant(name: str) -> NoReturn:
    message = f"'{name}' is no JSON number"
    raise ValueError(message)


def text_of(document: Mapping[str, Any], *path: str) -> str | None:
    """Return the string at a path of keys; None when anything on the way is missing or of another type."""
    value: Any = document
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value if isinstance(value, str) else None


def object_at(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object under a key; `{}` when there is none."""
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}
