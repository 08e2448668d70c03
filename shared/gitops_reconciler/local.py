"""One tick without a fleet: documents of a folder, flock and file store, git by our own mirror and checkout.

A working clone is never touched: what its `origin` has is fetched into a mirror of ours and applied from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from gitops_reconciler.backends.base import Tools
from gitops_reconciler.backends.registry import build_backend
from gitops_reconciler.clock import Deadline, SystemClock
from gitops_reconciler.errors import DocumentError, GitError, RefMissingError, SpecError, UnknownTargetError
from gitops_reconciler.git.base import Mirrors, Repository, SyncResult
from gitops_reconciler.git.clones import current_sha, origin_of
from gitops_reconciler.git.urls import parse_remote
from gitops_reconciler.layout import DEFAULT_SOURCE, Layout
from gitops_reconciler.locks.flock import FileLocks
from gitops_reconciler.logs import RunLogWriter
from gitops_reconciler.manifests.binding import bind
from gitops_reconciler.manifests.documents import ResourceDocument
from gitops_reconciler.manifests.loading import files_below, is_document, is_scope_file, read_folder
from gitops_reconciler.manifests.problems import did_you_mean, listed
from gitops_reconciler.manifests.tree import Tree, read_tree
from gitops_reconciler.models import BackEnd, ManagedTarget
from gitops_reconciler.outcomes import Outcome
from gitops_reconciler.processes import SubprocessRunner
from gitops_reconciler.reconcile import Reconciler
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.runs.parts import LateBackend, tool_environment
from gitops_reconciler.secrets import ReferencedSecrets
from gitops_reconciler.settings import Settings
from gitops_reconciler.store.files import FileStore
from gitops_reconciler.supervise.leftovers import end_leftovers_of
from gitops_reconciler.wiring import git_mirrors

DEFAULT_FOLDER = "gitops"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Where documents lie, and the repository that holds them."""

    path: Path
    root: Path
    """Top of the clone; without one, what holds the folder: paths in documents are relative to it."""
    is_clone: bool

    @property
    def prefix(self) -> str:
        """The folder as documents of the repository name it; empty at the top."""
        place = self.path.relative_to(self.root).as_posix()
        return "" if place == "." else place


def find_folder(given: Path | None, start: Path) -> Folder:
    """Return the folder that was given, else `gitops/` of the repository in which `start` lies.

    Raises:
        DocumentError: there is no such folder.

    """
    here = start.resolve()
    path = (here / given).resolve() if given is not None else (_top_of(here) or here) / DEFAULT_FOLDER
    if not path.is_dir():
        shown = given or path
        hint = "" if given else f" (name the folder of documents, or make '{DEFAULT_FOLDER}/')"
        message = f"there is no folder '{shown}'{hint}"
        raise DocumentError(message)
    top = _top_of(path)
    return Folder(path=path, root=top or path.parent, is_clone=top is not None)


def _top_of(folder: Path) -> Path | None:
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)


def tick_here(name: str, folder: Folder, settings: Settings, *, log: TextIO, say: Say) -> Outcome:
    """Make one attempt at a target that the folder declares, in this process. The tools' output goes to `log`.

    Raises:
        UnknownTargetError: no document declares it; the message says which there are.
        DocumentError: its document, or another one of its scope, is invalid.

    """
    local = _Tick(settings, folder, log=log, say=say)
    document = local.declared(name)
    layout = settings.layout
    reconciler = Reconciler(locks=FileLocks(layout), syncer=local, records=FileStore(layout), clock=SystemClock())
    target = ManagedTarget(
        name=document.name,
        backend=LateBackend(document.kind, local.backend),
        repo=local.place_of(document),
        notify=lambda _name, _status: None,  # the caller prints the outcome
    )
    grace = settings.lease_grace.total_seconds()
    end_leftovers_of(layout.lock(document.kind, target.name), layout.leftover(document.kind, target.name), grace)
    return reconciler.tick(target)


class _Tick:
    """The parts of one local tick; also the syncer of its reconciler."""

    def __init__(self, settings: Settings, folder: Folder, *, log: TextIO, say: Say) -> None:
        self._layout = settings.layout
        self._settings = settings
        self._folder = folder
        self._say = say
        self._redactor = Redactor()
        self._log = RunLogWriter(log, self._redactor)
        self._runner = SubprocessRunner(own_group=True, redactor=self._redactor)
        self._secrets = ReferencedSecrets(folder=settings.secrets_dir, environ=os.environ, redactor=self._redactor)
        self._own = _origin(folder)
        self._files = read_folder(folder.path, prefix=folder.prefix)
        self._tree = read_tree(self._files, source=DEFAULT_SOURCE, repository_files=files_below(folder.root))
        self._document: ResourceDocument
        self._deadline = Deadline()

    def declared(self, name: str) -> ResourceDocument:
        """Return the document of the target, as the folder has it."""
        self._document = _find(self._tree, name, str(self._folder.path))
        for problem in self._tree.problems:
            self._say(f"not the target's: {problem}")
        timeout = self._document.timeout or self._settings.run_deadline
        self._deadline = Deadline.after(timeout.total_seconds())
        return self._document

    def place_of(self, document: ResourceDocument) -> Path:
        """Return the folder that is applied: our checkout; without a remote, what the user has."""
        if self._own is None and document.repo is None:
            return self._folder.root
        return self._layout.tree(document.name)

    def sync(self, target: ManagedTarget) -> SyncResult:
        """Bring the checkout to the remote's tip, and the document with it."""
        self._log.phase("sync")
        if self._own is None and self._document.repo is None:
            return self._as_it_lies()
        mirrors = self._mirrors()
        revision = None
        if self._own is not None:
            revision = mirrors.fetch(self._own, asked=None, deadline=self._deadline)
            self._follow(mirrors, self._own, revision.sha)
        repository = self._document.repository(self._own or Repository(url=""))
        if revision is None or repository != self._own:
            revision = mirrors.fetch(repository, asked=None, deadline=self._deadline)
        name = self._document.name
        synced = mirrors.checkout(repository, revision.sha, target.repo, keep=name, deadline=self._deadline)
        self._log.line(f"{repository.url} {repository.ref} at {revision.sha[:12]} {revision.subject}")
        return SyncResult(tree=synced.tree, old=synced.old, new=synced.new, subject=revision.subject)

    def _as_it_lies(self) -> SyncResult:
        root = self._folder.root
        self._say(f"{root} has no remote: applied as it lies there")
        try:
            sha = current_sha(root) if self._folder.is_clone else ""
        except RefMissingError:
            sha = ""  # nothing was committed yet
        return SyncResult(tree=root, old=sha, new=sha)

    def _mirrors(self) -> Mirrors:
        settings = self._settings
        if self._own is not None and settings.git_allow_local is None:
            remote = parse_remote(self._own.url)
            if remote.is_local:  # the origin of the user's own clone: he trusts it already
                settings = settings.model_copy(update={"git_allow_local": Path(remote.path)})
        return git_mirrors(settings, self._redactor, self._runner, os.environ)

    def _follow(self, mirrors: Mirrors, own: Repository, sha: str) -> None:
        """Take the documents of the fetched revision, unless the folder has some that were not pushed yet."""
        if self._has_own_documents(mirrors, own):
            self._say(f"{self._folder.path} has changes that are not pushed: its documents are applied, on {sha[:12]}")
            return
        paths = mirrors.list_files(own, sha, self._folder.prefix)
        files = mirrors.read_files(own, sha, list(paths))
        below = partial(mirrors.list_files, own, sha)
        tree = read_tree(files, source=DEFAULT_SOURCE, repository_files=below)
        document = _find(tree, self._document.name, f"{own.url} at {sha[:12]}")
        if document.kind != self._document.kind:
            message = f"'{document.name}' became of kind '{document.kind}' at {sha[:12]}: pull, then tick again"
            raise SpecError(message)
        self._tree, self._document = tree, document

    def _has_own_documents(self, mirrors: Mirrors, own: Repository) -> bool:
        """Whether the folder differs from its own last commit, or that commit never reached the remote."""
        try:
            head = current_sha(self._folder.root)
            committed = mirrors.list_files(own, head, self._folder.prefix)
            return _documents_of(mirrors.read_files(own, head, list(committed))) != self._files
        except GitError:
            return True

    def backend(self) -> BackEnd:
        """Bind the document to the checkout and build its backend."""
        document = self._document
        config = bind(
            document,
            self._tree.providerconfig(document.kind, document.provider_config or ""),
            self.place_of(document),
            manifest=self._tree.manifest(document.kind),
            home=self._layout.home(document.name),
            secrets=self._secrets,
        )
        return build_backend(config, self._tools(document.name))

    def _tools(self, name: str) -> Tools:
        return Tools(
            runner=self._runner,
            clock=SystemClock(),
            env={**tool_environment(os.environ), "GITOPS_TARGET": name},
            log=self._log,
            marker=_FileMarker(self._layout, name),
            secrets=self._secrets,
            deadline=self._deadline,
            engine_locks=self._layout.engine_locks,
        )


@dataclass(frozen=True, slots=True)
class _FileMarker:
    """The marker of one target in the file store."""

    layout: Layout
    target: str

    def get(self) -> str | None:
        return FileStore(self.layout).marker(self.target)

    def set(self, value: str | None) -> None:
        FileStore(self.layout).set_marker(self.target, value)


def _origin(folder: Folder) -> Repository | None:
    """Return what the clone follows; None where it follows nothing."""
    if not folder.is_clone:
        return None
    url, branch = origin_of(folder.root)
    if url is None:
        return None
    return Repository(url=url, ref=f"refs/heads/{branch or 'main'}")


def _documents_of(committed: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return those files of a commit that are documents: what `read_folder` would list of it."""
    return {path: data for path, data in committed.items() if is_document(path) or is_scope_file(path)}


def _find(tree: Tree, name: str, where: str) -> ResourceDocument:
    """Return the document of a target that may be applied.

    Raises:
        UnknownTargetError: there is none. DocumentError: it, or its scope, has problems.

    """
    short = name.removeprefix(f"{DEFAULT_SOURCE}/")
    document = tree.resource(short)
    if document is not None and document.origin.scope not in tree.frozen:
        return document
    if document is not None or short in tree.held:
        raise DocumentError("\n".join(str(problem) for problem in tree.problems))
    names = [known.name for known in tree.resources]
    choices = f"{did_you_mean(short, names)}choose from: {listed(names)}" if names else "no targets are declared there"
    message = f"unknown target '{name}' in {where} ({choices})"
    raise UnknownTargetError(message)
