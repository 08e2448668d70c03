"""`for_each`: one document that declares a target for every file of the repository that its pattern means.

What a match stands for replaces `{folder}`, `{file}`, `{stem}` and `{path}` in texts; a `$` before the brace, or a
second brace, leaves it alone, so that shell and Jinja templates keep their meaning. All work is bounded.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gitops_reconciler.manifests.entries import Entry
from gitops_reconciler.manifests.fields import file_pattern
from gitops_reconciler.manifests.loading import MAX_FILES, MAX_TREE_BYTES
from gitops_reconciler.manifests.patterns import fits, fixed_folder
from gitops_reconciler.manifests.problems import (
    Complaint,
    DocumentWarning,
    Where,
    did_you_mean,
    field_name,
    listed,
    shown,
)

MAX_MATCHES: Final = 10_000
"""Of one document."""
MAX_LOOKED_AT: Final = 20_000_000
"""Files that all patterns of a tree are compared with."""
PLACEHOLDERS: Final = ("file", "folder", "path", "stem")
EXPANDED: Final = ("depends_on", "inputs", "labels", "name", "path", "spec", "watch")
"""Fields in whose texts placeholders are replaced."""

_PLACEHOLDER = re.compile(rf"(?<![{{$])\{{({'|'.join(PLACEHOLDERS)})\}}(?!\}})")
_ANY_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_VALUE_BYTES = 64  # what a value that is no text counts

ListFiles = Callable[[str], Iterable[str]]
"""The files of a repository below a folder (empty: all), by their paths from its root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """One target that a match makes of the document."""

    match: str
    name: str
    value: dict[str, Any]


class _RefusedError(Exception):
    """Why a document can't be expanded, and which field is to blame."""

    def __init__(self, message: str, *where: str) -> None:
        super().__init__(message)
        self.where: Where = where or ("for_each",)


class Expander:
    """Expands the documents of one tree; counts what they cost together."""

    def __init__(self, list_files: ListFiles | None) -> None:
        self._list_files = list_files
        self._folders: dict[str, list[str]] = {}
        self._looked_at = 0
        self._made = 0
        self._bytes = 0

    def expand(self, entry: Entry) -> list[Expansion]:
        """Return one expansion a match; none, and a problem or warning of the entry, where that is not possible."""
        try:
            return self._expand(entry)
        except _RefusedError as error:
            entry.refuse(Complaint(where=error.where, message=f"'{field_name(error.where)}': {error}"))
            return []

    def sample(self, template: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a match could make: so a document without matches is checked all the same."""
        return self._expanded(template, "x/x")

    def _expand(self, entry: Entry) -> list[Expansion]:
        pattern = _checked_pattern(entry.value)
        matches = self._matches(pattern)
        if not matches:
            message = f"'for_each': {shown(pattern)} matches no file of the repository: it declares no target"
            entry.warnings.append(DocumentWarning(path=entry.path, message=message))
            return []
        found: dict[str, Expansion] = {}
        for match in matches:
            value = self._expanded(entry.value, match)
            name = value["name"]
            first = found.setdefault(name, Expansion(match=match, name=name, value=value))
            if first.match != match:
                message = f"{shown(first.match)} and {shown(match)} both make the name {shown(name)}"
                raise _RefusedError(message, "name")
        return list(found.values())

    def _matches(self, pattern: str) -> list[str]:
        if self._list_files is None:
            message = "the files of the repository are not known here"
            raise _RefusedError(message)
        folder = fixed_folder(pattern)
        if folder not in self._folders:
            self._folders[folder] = sorted(self._list_files(folder))
        files = self._folders[folder]
        if not files:
            message = (
                f"there is no folder {shown(folder or '.')} in the repository; nothing is taken away because of that "
                "(to give its targets up, remove this document, or keep the folder with any file in it)"
            )
            raise _RefusedError(message)
        self._looked_at += len(files)
        if self._looked_at > MAX_LOOKED_AT:
            message = f"the patterns of this tree look at too many files (at most {MAX_LOOKED_AT} in all)"
            raise _RefusedError(message)
        matches = [path for path in files if fits(pattern, path)]
        odd = next((path for path in matches if not path.isprintable()), None)
        if odd is not None:
            message = f"{shown(pattern)} matches {shown(odd)}, whose name is no printable text"
            raise _RefusedError(message)
        self._made += len(matches)
        if len(matches) > MAX_MATCHES or self._made > MAX_FILES:
            message = (
                f"{shown(pattern)} matches {len(matches)} files (at most {MAX_MATCHES}, {MAX_FILES} in all documents)"
            )
            raise _RefusedError(message)
        return matches

    def _expanded(self, template: Mapping[str, Any], match: str) -> dict[str, Any]:
        folder, _, file = match.rpartition("/")
        words = {
            "folder": posixpath.basename(folder),
            "file": file,
            "stem": posixpath.splitext(file)[0],
            "path": folder or ".",
        }
        value = {key: item for key, item in template.items() if key != "for_each"}
        value.setdefault("path", "{path}")
        for key in EXPANDED:
            if key in value:
                value[key] = self._filled(value[key], words)
        self._check_cost()
        return value

    def _filled(self, value: Any, words: Mapping[str, str]) -> Any:
        """Return a value with the placeholders of its texts replaced; keys stay as they are."""
        if isinstance(value, str):
            text = _PLACEHOLDER.sub(lambda found: words[found[1]], value) if "{" in value else value
            self._bytes += len(text)
            return text
        self._bytes += _VALUE_BYTES
        if self._bytes > MAX_TREE_BYTES:
            self._check_cost()
        if isinstance(value, dict):
            return {key: self._filled(item, words) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item, words) for item in value]
        return value

    def _check_cost(self) -> None:
        if self._bytes > MAX_TREE_BYTES:
            message = f"the documents of this tree become too large (at most {MAX_TREE_BYTES >> 20} MiB in all)"
            raise _RefusedError(message)


def _checked_pattern(template: Mapping[str, Any]) -> str:
    try:
        pattern = file_pattern(template["for_each"])
    except ValueError as error:
        raise _RefusedError(str(error)) from None
    if "repo" in template:
        message = "goes with the files of the source's own repository, not with 'repo'"
        raise _RefusedError(message)
    metadata = template.get("metadata")
    if isinstance(metadata, Mapping) and "id" in metadata:
        message = "one id can't be that of several targets: leave 'metadata.id' out"
        raise _RefusedError(message, "metadata", "id")
    _check_name(template.get("name"))
    return pattern


def _check_name(name: Any) -> None:
    allowed = ", ".join(f"{{{word}}}" for word in PLACEHOLDERS)
    if not isinstance(name, str):
        message = f"must be a text with one of {allowed}, so that every match makes a name of its own"
        raise _RefusedError(message, "name")
    unknown = next((word for word in _ANY_PLACEHOLDER.findall(name) if word not in PLACEHOLDERS), None)
    if unknown is not None:
        hint = did_you_mean(unknown, PLACEHOLDERS)
        message = f"unknown placeholder {shown('{' + unknown + '}')} ({hint}there are: {listed(PLACEHOLDERS)})"
        raise _RefusedError(message, "name")
    if not _PLACEHOLDER.search(name):
        message = f"{shown(name)} has none of {allowed}: every match must make a name of its own"
        raise _RefusedError(message, "name")
