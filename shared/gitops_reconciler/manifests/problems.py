"""What is wrong with a document, where it stands, and what is allowed instead; values are shown, secrets never."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gitops_reconciler.errors import DocumentError, Reason
from gitops_reconciler.redaction import redact_url

Where = tuple[str | int, ...]
"""The way from the top of a document to one of its values: `("spec", "variables", "zone")`."""

_LONGEST_VALUE = 60
_MOST_CHARACTERS = 4096  # of a value are looked at when it is shown
_MOST_NAMES = 24

_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a map",
    "mapping_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
    "list_type": "a list",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentProblem:
    """One reason why a document cannot be taken; `str()` is the line that people read."""

    path: str
    line: int
    column: int
    message: str
    reason: Reason = Reason.INVALID_DOCUMENT
    scope: str = ""
    """Folder of the scope that the problem freezes; empty: the documents without a scope."""

    def __str__(self) -> str:
        """Return `path:line:column: message`."""
        return f"{on_one_line(self.path)}:{self.line}:{self.column}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentWarning:
    """Something that is taken as it stands, but that its author should know."""

    path: str
    message: str

    def __str__(self) -> str:
        """Return `path: message`."""
        return f"{on_one_line(self.path)}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A problem before its place in the file is known."""

    where: Where
    message: str
    reason: Reason = Reason.INVALID_DOCUMENT
    is_about_key: bool = False


class UnreadableError(DocumentError):
    """The bytes of a file are no document; says where they stop to be one."""

    def __init__(self, message: str, *, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def on_one_line(text: str) -> str:
    """Return a text that can break neither a line, nor a terminal, nor an encoder: what is not printable is escaped."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return (
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode("ascii")
    )


def shown(value: object) -> str:
    """Return a value as a message shows it: short, on one line, without URL credentials."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f"'{shortened(on_one_line(redact_url(value[:_MOST_CHARACTERS])))}'"
    return shortened(json.dumps(value, default=str))


def shortened(text: str) -> str:
    """Cut a text that is too long for a message."""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def listed(names: Iterable[str]) -> str:
    """Return names as a message lists them: sorted, and not without end."""
    ordered = sorted(names)
    ordered = [on_one_line(name) for name in ordered]
    more = f", … ({len(ordered)} in all)" if len(ordered) > _MOST_NAMES else ""
    return ", ".join(ordered[:_MOST_NAMES]) + more


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `did you mean 'x'? ` for a near miss, else nothing."""
    close = difflib.get_close_matches(name[:128], list(names), n=1)
    return f"did you mean '{close[0]}'? " if close else ""


def unknown_field(name: str, allowed: Iterable[str]) -> str:
    """Return the message about a field that does not exist."""
    names = list(allowed)
    return f"unknown field {shown(name)} ({did_you_mean(name, names)}allowed: {listed(names)})"


def field_name(where: Sequence[str | int]) -> str:
    """Return a place in a document as people write it: `spec.hosts[0]`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return shortened(on_one_line(text))


def complaints_of(error: ValidationError, model: type[BaseModel], where: Where = ()) -> list[Complaint]:
    """Turn what pydantic found into our words, one complaint a field."""
    return [_complaint(details, model, where) for details in error.errors(include_url=False)]


def _complaint(details: ErrorDetails, model: type[BaseModel], where: Where) -> Complaint:
    place = (*where, *details["loc"])
    name = field_name(place)
    if details["type"] == "missing":
        return Complaint(where=place[:-1], message=f"missing field '{name}'")
    if details["type"] == "extra_forbidden":
        allowed = _fields_at(model, details["loc"][:-1])
        return Complaint(where=place, message=unknown_field(str(place[-1]), allowed), is_about_key=True)
    if place and place[-1] == "[key]":
        message = f"'{field_name(place[:-2])}': {details.get('ctx', {}).get('error', details['msg'])}"
        return Complaint(where=place[:-1], message=message, is_about_key=True)
    prefix = f"'{name}'" if name else "the document"
    if details["type"] == "value_error":
        text = str(details["ctx"]["error"])
        return Complaint(where=place, message=f"{prefix}: {text}" if place else text)
    if expected := _EXPECTED.get(details["type"]):
        return Complaint(where=place, message=f"{prefix} must be {expected}, not {shown(details['input'])}")
    text = details["msg"][:1].lower() + details["msg"][1:]
    return Complaint(where=place, message=f"{prefix}: {text}, not {shown(details['input'])}")


def _fields_at(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """Return the names of the fields that the model has at a place."""
    for part in loc:
        by_name = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
        inner = by_name.get(str(part))
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return [field.alias or name for name, field in model.model_fields.items()]
