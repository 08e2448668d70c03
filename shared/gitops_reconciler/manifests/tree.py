"""The tree of one revision as a whole: typed documents in the order of their types, and everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gitops_reconciler.errors import DocumentError, Reason
from gitops_reconciler.layout import DEFAULT_SOURCE
from gitops_reconciler.manifests.checking import (
    read_manifest,
    read_providerconfig,
    read_reactorbinding,
    read_resource,
)
from gitops_reconciler.manifests.dependencies import check_dependencies
from gitops_reconciler.manifests.documents import (
    Document,
    ManifestDocument,
    ProviderConfigDocument,
    ReactorBindingDocument,
    ResourceDocument,
)
from gitops_reconciler.manifests.entries import Entry
from gitops_reconciler.manifests.expanding import Expander, ListFiles
from gitops_reconciler.manifests.known import Known
from gitops_reconciler.manifests.loading import check_size, is_document
from gitops_reconciler.manifests.problems import (
    Complaint,
    DocumentProblem,
    DocumentWarning,
    did_you_mean,
    listed,
    shown,
)
from gitops_reconciler.manifests.scopes import Scope, Scopes, read_scopes
from gitops_reconciler.manifests.written import TYPES, TYPES_NOT_BUILT

_NO_TARGETS: Final = ("manifest", "providerconfig", "reactorbinding")
_NO_TYPE: Final = (
    f"no 'type' (must be one of: {listed(TYPES)}): every .json, .yaml and .yml file of the tree is a document, "
    "whatever its name; move this one out of the tree, or list it under 'ignore' in a gitops.yaml"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What a source declares at one revision."""

    source: str
    scopes: tuple[Scope, ...]
    """By folder."""
    manifests: tuple[ManifestDocument, ...]
    providerconfigs: tuple[ProviderConfigDocument, ...]
    reactorbindings: tuple[ReactorBindingDocument, ...]
    resources: tuple[ResourceDocument, ...]
    """All valid ones, by path; those of frozen scopes too."""
    problems: tuple[DocumentProblem, ...]
    """By path, line and column."""
    warnings: tuple[DocumentWarning, ...]
    frozen: frozenset[str]
    """Folders of scopes in which nothing may change; empty string: the documents without a scope."""
    held: frozenset[str]
    """Names that invalid resources declare: their targets are left as they are."""
    file_count: int = 0
    """How many files are documents, valid or not; 0 is an empty checkout as likely as an emptied tree (R1.3)."""
    _frozen_apps: frozenset[str] = field(default=frozenset())
    _known_folders: frozenset[str] = field(default=frozenset())
    _by_name: Mapping[str, ResourceDocument] = field(default_factory=dict)

    @property
    def documents(self) -> tuple[Document, ...]:
        """All valid documents in the order in which they are applied: by type, then by path (R1.22)."""
        return (*self.manifests, *self.providerconfigs, *self.reactorbindings, *self.resources)

    @property
    def applicable(self) -> tuple[Document, ...]:
        """The documents that a sync may write: no resource of a frozen scope; the other types have no scope (R1.13)."""
        resources = (document for document in self.resources if document.origin.scope not in self.frozen)
        return (*self.manifests, *self.providerconfigs, *self.reactorbindings, *resources)

    def keeps(self, *, name: str, app: str, scope: str) -> bool:
        """Whether a stored target that the tree does not declare must stay as it is: neither stale nor pruned.

        `app` and `scope` are those that it was stored with.
        """
        if name in self.held or scope in self.frozen or (app and app in self._frozen_apps):
            return True
        # A scope file that cannot be read may be the one of a folder that was moved.
        has_unknown_owner = any(not known.is_valid for known in self.scopes)
        return has_unknown_owner and bool(scope) and scope not in self._known_folders

    def manifest(self, kind: str) -> ManifestDocument | None:
        """Return the manifest that declares a kind."""
        return next((document for document in self.manifests if document.kind == kind), None)

    def providerconfig(self, kind: str, name: str) -> ProviderConfigDocument | None:
        """Return a providerconfig of a kind."""
        matching = (document for document in self.providerconfigs if (document.kind, document.name) == (kind, name))
        return next(matching, None)

    def resource(self, name: str) -> ResourceDocument | None:
        """Return the resource of a name."""
        return self._by_name.get(name)

    def check(self, root: str) -> None:
        """Refuse the tree as a whole, as the command line does.

        Raises:
            DocumentError: all problems, one a line; or there are no documents at all.

        """
        if self.problems:
            raise DocumentError("\n".join(str(problem) for problem in self.problems))
        if not self.file_count:
            message = f'no manifests found under {root} (expected .json/.yaml/.yml files, each with a "type" field)'
            raise DocumentError(message)


def read_tree(
    files: Mapping[str, bytes], *, source: str = DEFAULT_SOURCE, repository_files: ListFiles | None = None
) -> Tree:
    """Return what files declare: path from the repository's root -> bytes, of which only documents are looked at.

    `repository_files` lists the repository's files below a folder, for `for_each`; it is called only where one stands,
    and what it raises comes through. No content raises anything: what is wrong is in `problems`.

    Raises:
        DocumentError: the tree is too large as a whole.

    """
    check_size(f"source {shown(source)}", count=len(files), size=sum(map(len, files.values())))
    scopes = read_scopes(files)
    paths = sorted(path for path in files if is_document(path) and not scopes.ignores(path))
    entries = [_read(path, files[path], scopes) for path in paths]
    known = Known(source)
    by_type = {name: [entry for entry in entries if _type(entry) == name] for name in TYPES}
    for entry in by_type["manifest"]:
        read_manifest(entry, known)
    for entry in by_type["providerconfig"]:
        read_providerconfig(entry, known)
    for entry in by_type["reactorbinding"]:
        read_reactorbinding(entry, known)
    _check_defaults(scopes, known)
    expander = Expander(repository_files)
    for entry in by_type["resource"]:
        read_resource(entry, known, scopes.nearest(entry.path), expander)
    check_dependencies(known)
    return _tree(known, scopes, entries)


def _read(path: str, data: bytes, scopes: Scopes) -> Entry:
    scope = scopes.nearest(path)
    entry = Entry(path, "" if scope is None else scope.folder)
    entry.read(data)
    if entry.is_valid:
        _check_type(entry)
    return entry


def _type(entry: Entry) -> str | None:
    name = entry.value.get("type")
    return name if entry.is_valid and isinstance(name, str) else None


def _check_type(entry: Entry) -> None:
    name = entry.value.get("type")
    reason = Reason.INVALID_DOCUMENT
    if "type" not in entry.value:
        message = _NO_TYPE
    elif isinstance(name, str) and name in TYPES_NOT_BUILT:
        message = f"type '{name}' is not built in this version (it comes later)"
        reason = Reason.NOT_BUILT
    elif name == "cluster":
        message = "cannot sync object type 'cluster'"
    elif not isinstance(name, str) or name not in TYPES:
        hint = did_you_mean(name, TYPES) if isinstance(name, str) else ""
        message = f"unknown object type {shown(name)} ({hint}must be one of: {listed(TYPES)})"
    else:
        return
    entry.refuse(Complaint(where=("type",), message=message, reason=reason))


def _check_defaults(scopes: Scopes, known: Known) -> None:
    """Refuse a default that names a providerconfig of no kind at all."""
    names = {name for _, name in known.configs_seen}
    for folder, scope in scopes.by_folder.items():
        if scope.provider_config is not None and scope.provider_config not in names:
            hint = f"{did_you_mean(scope.provider_config, names)}there are: {listed(names)}"
            message = f"'defaults.provider_config': unknown provider config {shown(scope.provider_config)} ({hint})"
            scopes.entries[folder].refuse(Complaint(where=("defaults", "provider_config"), message=message))


def _tree(known: Known, scopes: Scopes, entries: list[Entry]) -> Tree:
    ordered = tuple(scope for _, scope in sorted(scopes.by_folder.items()))
    everything = [*scopes.entries.values(), *entries]
    problems = sorted(
        (problem for entry in everything for problem in entry.problems),
        key=lambda problem: (problem.path, problem.line, problem.column),
    )
    frozen = {problem.scope for problem in problems} | known.contested
    apps = frozenset(scope.app for scope in ordered if scope.is_valid and scope.folder in frozen)
    # Scopes of one app own together, so they rest together.
    frozen |= {scope.folder for scope in ordered if scope.app in apps}
    resources = tuple(sorted(known.resources.values(), key=lambda document: document.origin.path))
    unowned = [document.origin.path for document in resources if not document.app]
    message = "has no gitops.yaml above it: it is applied, but never pruned"
    invalid = [entry for entry in entries if not entry.is_valid and entry.value.get("type") not in _NO_TARGETS]
    names = (name for entry in invalid for name in (entry.value.get("name"), *entry.names))
    doubts = [*scopes.warnings(), *(warning for entry in entries for warning in entry.warnings)]
    return Tree(
        source=known.source,
        scopes=ordered,
        manifests=tuple(known.manifests.values()),
        providerconfigs=tuple(known.configs.values()),
        reactorbindings=tuple(known.bindings.values()),
        resources=resources,
        problems=tuple(problems),
        warnings=(*doubts, *(DocumentWarning(path=path, message=message) for path in dict.fromkeys(unowned))),
        frozen=frozenset(frozen),
        held=frozenset(name for name in names if isinstance(name, str)),
        file_count=len(entries),
        _frozen_apps=apps,
        _by_name=known.resources,
        _known_folders=frozenset(scope.folder for scope in ordered if scope.is_valid),
    )
