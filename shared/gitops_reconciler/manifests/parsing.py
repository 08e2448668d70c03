"""From the bytes of one file to one JSON-like map, with the line and column of everything in it.

Nothing but maps with string keys, lists, strings, finite numbers, booleans and null comes out, and no input makes it
raise anything but `UnreadableError`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import yaml

from gitops_reconciler.manifests.composing import (
    LARGEST_INTEGER,
    MAX_DEPTH,
    MAX_NODES,
    NOT_FINITE,
    TOO_DEEP,
    TOO_LARGE_A_NUMBER,
    Place,
    compose,
)
from gitops_reconciler.manifests.problems import UnreadableError, Where, shown

MAX_BYTES = 1 << 20

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LONGEST_WORDS = 200


class Parsed:
    """A map, and where everything in it stands; of JSON that is found out only when somebody asks."""

    __slots__ = ("_place", "_text", "value")

    def __init__(self, value: dict[str, Any], place: Place | None, text: str) -> None:
        self.value = value
        self._place = place
        self._text = text if place is None else ""

    def position(self, where: Where = (), *, of_key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of a value or of its key."""
        if self._place is None:
            try:
                self._place = _place_in_json(self._text)
            except UnreadableError:
                self._place = Place(1, 1)
        place = self._place.at(where)
        return place.key if of_key and place.key is not None else (place.line, place.column)


def parse(data: bytes, *, is_json: bool) -> Parsed:
    """Return the one map that a file holds.

    Raises:
        UnreadableError: no UTF-8, no valid YAML or JSON, no map, several documents, a duplicate key, or over a limit.

    """
    if len(data) > MAX_BYTES:
        message = f"the file is too large (at most {MAX_BYTES >> 10} KiB)"
        raise UnreadableError(message)
    text = _decoded(data)
    if not text.strip():
        message = "the file is empty"
        raise UnreadableError(message)
    value, place = (_json(text), None) if is_json else _yaml(text)
    try:
        _Limits().check(value, 0)
    except _FlawError as flaw:
        raise _placed(flaw, place, text) from None
    if not isinstance(value, dict):
        message = f"a document is a map of fields, not {shown(value)}"
        raise UnreadableError(message)
    return Parsed(value, place, text)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = _line_and_column(before, len(before))
        message = "the file is not UTF-8"
        raise UnreadableError(message, line=line, column=column) from None


def _line_and_column(text: str, index: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, index) + 1
    return text.count("\n", 0, index) + 1, index - start + 1


class _FlawError(Exception):
    """A value that no document may hold; `where` gathers the way to it, innermost first."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.where: list[str | int] = []


def _placed(flaw: _FlawError, place: Place | None, text: str) -> UnreadableError:
    try:
        found = (place or _place_in_json(text)).at(tuple(reversed(flaw.where)))
        line, column = found.line, found.column
    except UnreadableError as error:
        line, column = (error.line, error.column) if str(error) == flaw.message else (1, 1)
    return UnreadableError(flaw.message, line=line, column=column)


class _Limits:
    """Looks at everything in a value once, aliases in full."""

    def __init__(self) -> None:
        self._nodes = 0

    def check(self, value: object, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"the document is too large (at most {MAX_NODES} values, aliases counted in full)"
            raise _FlawError(message)
        if isinstance(value, dict | list):
            self._check_inside(value, depth + 1)
        elif isinstance(value, str):
            _check_string(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise _FlawError(NOT_FINITE)
        elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise _FlawError(TOO_LARGE_A_NUMBER)

    def _check_inside(self, value: dict[str, Any] | list[Any], depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _FlawError(TOO_DEEP)
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            try:
                if isinstance(key, str):
                    _check_string(key)
                self.check(item, depth)
            except _FlawError as flaw:
                flaw.where.append(key)
                raise


def _check_string(text: str) -> None:
    if text.isascii():
        if "\0" in text:
            message = "a text may not hold a NUL character"
            raise _FlawError(message)
        return
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        message = "a text may hold neither a NUL character nor half a surrogate pair"
        raise _FlawError(message)


# JSON


class _DuplicateKeyError(ValueError):
    """A key stands twice in one object."""


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise UnreadableError(TOO_DEEP) from None
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise UnreadableError(message, line=error.lineno, column=error.colno) from None
    except _DuplicateKeyError as error:
        _place_in_json(text)  # stops at the second of the two, and says where it is
        raise UnreadableError(str(error)) from None
    except ValueError as error:
        message = f"not valid JSON: {shown(str(error))}"
        raise UnreadableError(message) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            message = f"the key {shown(key)} stands here twice"
            raise _DuplicateKeyError(message)
        value[key] = item
    return value


def _refuse_constant(text: str) -> NoReturn:
    message = f"'{text}' is no JSON number"
    raise ValueError(message)


def _place_in_json(text: str) -> Place:
    """Return where things stand in a JSON text; it is read as YAML, and where YAML is stricter only the top is known.

    Raises:
        UnreadableError: at the second of two equal keys.

    """
    # libyaml takes no escaped surrogates; other escapes of the same length leave all places as they are.
    text = _SURROGATE_ESCAPE.sub(r"\\u0020", text)
    try:
        composed = compose(text)
    except yaml.YAMLError:
        composed = None
    return composed[1] if composed else Place(1, 1)


# YAML


def _yaml(text: str) -> tuple[Any, Place]:
    try:
        composed = compose(text)
    except yaml.YAMLError as error:
        raise _unreadable(error, text) from None
    if composed is None:
        message = "the file is empty"
        raise UnreadableError(message)
    return composed


def _unreadable(error: yaml.YAMLError, text: str) -> UnreadableError:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.context, error.problem) if part)
        message = f"not valid YAML: {' '.join(words.split())[:_LONGEST_WORDS]}"
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return UnreadableError(message, line=line, column=column)
    if isinstance(error, yaml.reader.ReaderError):
        line, column = _line_and_column(text, error.position)
        return UnreadableError(f"not valid YAML: {error.reason}", line=line, column=column)
    return UnreadableError("not valid YAML")
