"""Who owns which documents: the nearest scope file above a document wins; what it ignores is not read at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from gitops_reconciler.errors import Reason
from gitops_reconciler.manifests.entries import Entry
from gitops_reconciler.manifests.loading import SCOPE_FILES, is_scope_file
from gitops_reconciler.manifests.patterns import matches
from gitops_reconciler.manifests.problems import Complaint, DocumentWarning
from gitops_reconciler.manifests.written import NOT_BUILT, WrittenScope

_TOP = "."
DEFAULT_MAX_PRUNE: Final = 10
"""Targets of one scope that one sync may tear down where its scope file says nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A folder with a scope file, and what it gives to the resources below it."""

    folder: str
    """`.` for the top of the tree's paths."""
    path: str
    """The scope file."""
    app: str = ""
    """Empty: the file is invalid, so nobody knows whose the documents are."""
    interval: timedelta | None = None
    provider_config: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    prune: bool = False
    """Whether what left the tree is torn down; else it goes stale."""
    max_prune: int | str | None = None
    """A number of targets, or a percentage (`20%`)."""

    @property
    def is_valid(self) -> bool:
        """Whether the file could be read."""
        return bool(self.app)

    def prune_limit(self, owned: int) -> int:
        """Return how many of the targets that its app owns one sync may tear down; more than that is refused whole.

        A percentage rounds down, and allows at least one.
        """
        if self.max_prune is None:
            return DEFAULT_MAX_PRUNE
        if isinstance(self.max_prune, int):
            return self.max_prune
        return max(1, owned * int(self.max_prune.removesuffix("%")) // 100)


@dataclass(frozen=True, slots=True)
class Scopes:
    """All scopes of a tree, by folder."""

    by_folder: Mapping[str, Scope]
    entries: Mapping[str, Entry]
    """The scope files, by folder."""

    def nearest(self, path: str) -> Scope | None:
        """Return the scope of a file: that of its own folder, or of the nearest one above."""
        return next(self._above(path), None)

    def ignores(self, path: str) -> bool:
        """Whether a scope of any folder above says that the file is no document."""
        return any(_ignores(scope, path) for scope in self._above(path))

    def _above(self, path: str) -> Iterator[Scope]:
        """Find the scopes of the folders above a file, the nearest first."""
        folder = path
        while folder != _TOP:
            folder = folder_of(folder)
            if folder in self.by_folder:
                yield self.by_folder[folder]

    def warnings(self) -> list[DocumentWarning]:
        """Return what is doubtful: one app in several folders (R1.12)."""
        first: dict[str, Scope] = {}
        found = []
        for _, scope in sorted(self.by_folder.items()):
            other = first.setdefault(scope.app, scope) if scope.is_valid else scope
            if other is not scope:
                message = f"app '{scope.app}' is declared in {other.path} too: the scopes merge, and own together"
                found.append(DocumentWarning(path=scope.path, message=message))
        return found


def read_scopes(files: Mapping[str, bytes]) -> Scopes:
    """Read all scope files, the outermost first; one that an outer scope ignores is none."""
    found: dict[str, Scope] = {}
    entries: dict[str, Entry] = {}
    scopes = Scopes(found, entries)
    paths = [path for path in files if is_scope_file(path)]
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        if not scopes.ignores(path):
            folder = folder_of(path)
            entries[folder] = Entry(path, folder)
            found[folder] = _read(entries[folder], files[path], folder, is_twin=folder in found)
    return scopes


def _read(entry: Entry, data: bytes, folder: str, *, is_twin: bool) -> Scope:
    entry.read(data)
    if is_twin:
        entry.refuse(Complaint(where=(), message=f"a folder has only one of {' and '.join(sorted(SCOPE_FILES))}"))
    written = _written(entry) if entry.is_valid else None
    if written is None or not entry.is_valid:
        return Scope(folder=folder, path=entry.path, ignore=tuple(written.ignore) if written else ())
    return Scope(
        folder=folder,
        path=entry.path,
        app=written.app,
        interval=written.defaults.interval,
        provider_config=written.defaults.provider_config,
        labels=written.defaults.labels,
        ignore=tuple(written.ignore),
        prune=written.prune,
        max_prune=written.max_prune,
    )


def _written(entry: Entry) -> WrittenScope | None:
    fields = entry.refuse_not_built(entry.value, NOT_BUILT["scope"])
    written = entry.check(WrittenScope, fields)
    if written is not None and written.prune:
        message = "'prune: true' is not built in this version (it comes later): a removed document goes stale"
        entry.refuse(Complaint(where=("prune",), message=message, reason=Reason.NOT_BUILT))
    return written


def _ignores(scope: Scope, path: str) -> bool:
    if not scope.ignore:
        return False
    parts = tuple(path.removeprefix(f"{scope.folder}/").split("/"))
    return any(matches(pattern, parts) for pattern in scope.ignore)


def folder_of(path: str) -> str:
    """Return the folder of a path, `.` for the top."""
    return path.rpartition("/")[0] or _TOP
