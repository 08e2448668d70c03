"""YAML events become one value and the places of everything in it; aliases share, nothing recurses.

The core schema of YAML 1.2 is read: `on`, `off`, `yes` and `no` are strings, so that `on: [failed]` and `interval: off`
mean what they say. What two readers of YAML take differently (`0644`) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

from gitops_reconciler.manifests.problems import UnreadableError, Where, shown

MAX_DEPTH = 50
MAX_NODES = 50_000
LARGEST_INTEGER = (1 << 63) - 1
TOO_DEEP = f"the document is nested too deeply (at most {MAX_DEPTH} levels)"
TOO_LARGE_A_NUMBER = "a number must fit into 64 bits (quote it if it is text)"
NOT_FINITE = "a number must be finite (quote it if it is text)"

# libyaml is ten times as fast; installations of PyYAML without it exist.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = object()
_NO_KEY = object()

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_AMBIGUOUS = re.compile(r"[-+]?0[0-9]+")
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_MAY_BE_SPECIAL = frozenset("0123456789+-.~nNtTfF")


class Place(NamedTuple):
    """Where a value stands, and where what it holds stands; lines and columns count from 1."""

    line: int
    column: int
    key: tuple[int, int] | None = None
    """Where the value's key stands, if it has one."""
    inside: Mapping[str, Place] | Sequence[Place] | None = None

    def at(self, where: Where) -> Place:
        """Return the place of an inner value, or of the innermost value on the way to it that exists."""
        place = self
        for part in where:
            inside, inner = place.inside, None
            if isinstance(inside, Mapping):
                inner = inside.get(str(part))
            elif inside is not None and isinstance(part, int) and part < len(inside):
                inner = inside[part]
            if inner is None:
                break
            place = inner
        return place


def compose(text: str) -> tuple[Any, Place] | None:
    """Return the one document of a YAML text and its places; None when there is none.

    Raises:
        UnreadableError: several documents, a duplicate key, a tag, an endless alias, a number that is none.
        yaml.YAMLError: it is no YAML.

    """
    composer = _Composer()
    loader = _LOADER(text)
    try:
        while (event := loader.get_event()) is not None:
            composer.feed(event)
    finally:
        loader.dispose()
    return None if composer.place is None else (composer.value, composer.place)


@dataclass(slots=True)
class _Frame:
    """A map or list that is not yet at its end."""

    value: Any
    inside: Any
    line: int
    column: int
    anchor: str | None
    key: Any = _NO_KEY
    key_at: tuple[int, int] = (1, 1)
    merged: list[tuple[dict[str, Any], Any]] = field(default_factory=list)

    @property
    def awaits_key(self) -> bool:
        return self.key is _NO_KEY and isinstance(self.value, dict)


class _Composer:
    """Takes the parser's events one by one."""

    def __init__(self) -> None:
        self.value: Any = None
        self.place: Place | None = None
        self._open: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, Any]] = {}
        self._merged = 0

    def feed(self, event: Any) -> None:
        """Take the next event."""
        if isinstance(event, yaml.ScalarEvent):
            value = event.value if event.implicit[1] and event.tag is None else _scalar(event)
            self._add(event, value, None, event.anchor)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent) and self.place is not None:
            raise _at(event, "the file holds several documents: put each into a file of its own")

    def _begin(self, event: Any) -> None:
        is_map = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in {None, "!", _TAG + ("map" if is_map else "seq")}:
            raise _at(event, f"the tag {shown(_tag_name(event.tag))} is not allowed")
        if len(self._open) >= MAX_DEPTH:
            raise _at(event, TOO_DEEP)
        if self._open and self._open[-1].awaits_key:
            raise _at(event, "a key must be a plain string, not a map or a list")
        mark = event.start_mark
        value: Any = {} if is_map else []
        self._open.append(_Frame(value, type(value)(), mark.line + 1, mark.column + 1, event.anchor))

    def _end(self, event: Any) -> None:
        frame = self._open.pop()
        for value, inside in frame.merged:
            for key, item in value.items():
                if key not in frame.value:
                    frame.value[key] = item
                    frame.inside[key] = inside[key]
        if frame.anchor:
            self._anchors[frame.anchor] = (frame.value, frame.inside)
        self._put(event, frame.value, frame.line, frame.column, frame.inside)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors or any(frame.anchor == event.anchor for frame in self._open):
            raise _at(event, f"the alias {shown('*' + event.anchor)} is not defined before it is used")
        value, inside = self._anchors[event.anchor]
        self._add(event, value, inside, None)

    def _add(self, event: Any, value: Any, inside: Any, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = (value, inside)
        if self._open and self._open[-1].awaits_key:
            _take_key(self._open[-1], value, event)
        else:
            self._put(event, value, event.start_mark.line + 1, event.start_mark.column + 1, inside)

    def _put(self, event: Any, value: Any, line: int, column: int, inside: Any) -> None:
        if not self._open:
            self.value, self.place = value, Place(line, column, None, inside)
            return
        frame = self._open[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
            frame.inside.append(Place(line, column, None, inside))
            return
        key, frame.key = frame.key, _NO_KEY
        if key is _MERGE:
            self._merge(frame, value, inside, event)
        else:
            frame.value[key] = value
            frame.inside[key] = Place(line, column, frame.key_at, inside)

    def _merge(self, frame: _Frame, value: Any, inside: Any, event: Any) -> None:
        """Remember what `<<` brings in; the map's own keys win, wherever they stand."""
        is_list = isinstance(value, list)
        for one, places in (
            zip(value, (place.inside for place in inside), strict=True) if is_list else [(value, inside)]
        ):
            if not isinstance(one, dict):
                raise _at(event, "'<<' takes a map, or a list of maps")
            self._merged += len(one)
            if self._merged > MAX_NODES:
                raise _at(event, "the document is too large: '<<' repeats too much")
            frame.merged.append((one, places))


def _take_key(frame: _Frame, key: Any, event: Any) -> None:
    if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
        frame.key = _MERGE
        return
    if not isinstance(key, str):
        raise _at(event, f"a key must be a string: quote {shown(key)}")
    if key in frame.value:
        raise _at(event, f"the key {shown(key)} stands here twice")
    frame.key = key
    frame.key_at = (event.start_mark.line + 1, event.start_mark.column + 1)


def _at(event: Any, message: str) -> UnreadableError:
    return UnreadableError(message, line=event.start_mark.line + 1, column=event.start_mark.column + 1)


def _tag_name(tag: str) -> str:
    return tag.replace(_TAG, "!!")


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.implicit[0]:
        return _plain(text, event) if not text or text[0] in _MAY_BE_SPECIAL else text
    if event.implicit[1] or event.tag in {None, "!", _TAG + "str"}:
        return text
    types: dict[str, type] = {"null": type(None), "bool": bool, "int": int, "float": float}
    expected = types.get(event.tag.removeprefix(_TAG))
    if expected is None:
        raise _at(event, f"the tag {shown(_tag_name(event.tag))} is not allowed")
    value = _plain(text, event)
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:
        raise _at(event, f"{shown(text)} is no {_tag_name(event.tag)}")
    return value


def _plain(text: str, event: Any) -> Any:
    """Return what an unquoted word means by the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _AMBIGUOUS.fullmatch(text):
        raise _at(event, f"{shown(text)} is octal to some readers and decimal to others: quote it, or write 0o…")
    if _INFINITE.fullmatch(text):
        raise _at(event, NOT_FINITE)
    if _INTEGER.fullmatch(text) or _OCTAL_OR_HEX.fullmatch(text):
        value = int(text, 0) if len(text) <= _LONGEST_INTEGER else LARGEST_INTEGER + 1
        if abs(value) > LARGEST_INTEGER:
            raise _at(event, TOO_LARGE_A_NUMBER)
        return value
    return float(text) if _FLOAT.fullmatch(text) else text


_LONGEST_INTEGER = 32  # characters; octal needs 23
