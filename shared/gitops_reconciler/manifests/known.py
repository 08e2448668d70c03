"""What the files of a tree that were read so far declare, and who declared a name or an id first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gitops_reconciler.manifests.documents import (
    ManifestDocument,
    Origin,
    ProviderConfigDocument,
    ReactorBindingDocument,
    ResourceDocument,
)
from gitops_reconciler.manifests.entries import Entry
from gitops_reconciler.manifests.identity import content_hash, document_id, explicit_id
from gitops_reconciler.manifests.problems import Complaint, Where, field_name, on_one_line
from gitops_reconciler.manifests.schema import SpecSchema
from gitops_reconciler.manifests.written import WrittenMetadata


class Reference(NamedTuple):
    """One place of a document that names another target."""

    where: Where
    item: str
    """Fleet-wide name, `source/name`."""


@dataclass(slots=True)
class Known:
    """What the files read so far declare; read in the order of the types, then by path."""

    source: str
    manifests: dict[str, ManifestDocument] = field(default_factory=dict)
    schemas: dict[str, SpecSchema] = field(default_factory=dict)
    configs: dict[tuple[str, str], ProviderConfigDocument] = field(default_factory=dict)
    bindings: dict[str, ReactorBindingDocument] = field(default_factory=dict)
    resources: dict[str, ResourceDocument] = field(default_factory=dict)
    kinds_seen: dict[str, Entry] = field(default_factory=dict)
    """Who declares a kind first, validly or not."""
    configs_seen: dict[tuple[str, str], Entry] = field(default_factory=dict)
    bindings_seen: dict[str, Entry] = field(default_factory=dict)
    names_seen: dict[str, Entry] = field(default_factory=dict)
    references: dict[str, tuple[Reference, ...]] = field(default_factory=dict)
    """What the valid resources refer to."""
    matches: dict[str, str] = field(default_factory=dict)
    """Of targets that a `for_each` made: the file that each stands for."""
    ids: dict[str, str] = field(default_factory=dict)
    contested: set[str] = field(default_factory=set)
    """Scopes of first documents whose name a second one declares too: which of the two is meant, nobody knows."""


def is_second(
    entry: Entry, known: Known, seen: dict[Any, Entry], key: Any, what: str, *, where: Where = ("kind",)
) -> bool:
    """Refuse the second of two documents that declare the same; the scope of the first rests too."""
    first = seen.setdefault(key, entry)
    if first is entry:
        return False
    known.contested.add(first.scope)
    entry.refuse(Complaint(where=where, message=f"{what} is declared in {on_one_line(first.path)} too"))
    return True


def origin_of(entry: Entry, metadata: WrittenMetadata, known: Known, scope: str = "", *, expanded: str = "") -> Origin:
    """Return where a document comes from and what it is known by; an id that is none, or another's, is refused.

    `expanded` is the name of a target that a `for_each` made, one of several of the file.
    """
    identity = document_id(f"{entry.path}#{expanded}" if expanded else entry.path, known.source)
    where: Where = ("metadata", "id") if metadata.id is not None else ()
    if metadata.id is not None:
        try:
            identity = explicit_id(metadata.id)
        except ValueError as error:
            entry.refuse(Complaint(where=where, message=f"'{field_name(where)}' {error}"))
    first = known.ids.setdefault(identity, entry.path)
    if first != entry.path:
        message = f"the id {identity} is that of {on_one_line(first)} too"
        entry.refuse(Complaint(where=where, message=message))
    return Origin(
        source=known.source,
        path=entry.path,
        line=entry.line(),
        id=identity,
        content_hash=content_hash(entry.value),
        scope=scope,
    )
