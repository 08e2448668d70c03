"""One tick, or one destroy, of one target of the fleet, inside its run process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gitops_reconciler import keys
from gitops_reconciler.backends.base import OwnsResource, Tools
from gitops_reconciler.backends.registry import build_backend
from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import (
    GitopsError,
    NotSyncedError,
    OwnedElsewhereError,
    OwnerLeavingError,
    Reason,
    SpecError,
    StillStalledError,
)
from gitops_reconciler.git.base import Repository, SyncResult
from gitops_reconciler.logs import RunLogWriter
from gitops_reconciler.manifests.binding import bind
from gitops_reconciler.manifests.documents import (
    ManifestDocument,
    ProviderConfigDocument,
    ResourceDocument,
    from_record,
)
from gitops_reconciler.models import BackEnd, ManagedTarget
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState, Trigger
from gitops_reconciler.reconcile import Reconciler
from gitops_reconciler.runs.parts import AlreadyHeld, LateBackend, RunParts, Said, StoredMarker
from gitops_reconciler.store.redis import ItemView
from gitops_reconciler.supervise.order import Order
from gitops_reconciler.work.base import Cause, Guard

_FORCING = {Trigger.MANUAL.value, Trigger.WEBHOOK.value, Trigger.SOURCE.value}


@dataclass(kw_only=True)
class TargetRun:
    """One tick of one target of the fleet; also the `Syncer` of its reconciler."""

    order: Order
    view: ItemView
    parts: RunParts
    log: RunLogWriter
    lock_fd: int
    deadline: Deadline = field(init=False)

    def __post_init__(self) -> None:
        """The run's deadline counts from its claim."""
        self.deadline = Deadline(at=self.order.claimed_at + self.order.deadline_seconds)

    def run(self) -> Outcome:
        """Tick, or destroy when the target is wished absent."""
        said = Said()
        reconciler = Reconciler(
            locks=AlreadyHeld(self.order.token),
            syncer=self,
            records=said,
            clock=self.parts.clock,
            reads_outputs=True,
        )
        target = ManagedTarget(
            name=self.order.item.rpartition("/")[2],
            backend=LateBackend(self.view.kind, self._backend, self._own),
            repo=self.tree,
            notify=lambda _name, _status: None,  # the completion writes the event that the notifier reads
        )
        if self.is_wanted:
            reconciler.tick(target)
        elif "applied_document" in self.view.fields:
            reconciler.destroy(target)
        else:
            return self._nothing_to_destroy()
        outcome = said.outcome
        if outcome is None:  # the lease is held already, so every tick leaves its word
            message = f"the tick of '{self.order.item}' left no word"
            raise GitopsError(message)
        return outcome

    @property
    def is_wanted(self) -> bool:
        """Whether the wish is that the target exists."""
        return bool(self.order.payload.get("is_wanted", True))

    def _nothing_to_destroy(self) -> Outcome:
        return Outcome(
            target=self.order.item,
            state=RunState.NO_CHANGE,
            reason=Reason.DESTROYED,
            message="nothing to destroy: it was never applied",
            next_ask=NextAsk.NEVER,
        )

    @property
    def tree(self) -> Path:
        """The target's persistent checkout."""
        return self.parts.layout.tree(self.order.item)

    @property
    def repository(self) -> Repository:
        """Where the target's files come from; for a destroy, where they came from when it was applied."""
        names = ("url", "ref") if self.is_wanted else ("applied_url", "applied_ref")
        url, ref = (self.view.fields[name] for name in names)
        return Repository(url=url, ref=ref)

    def sync(self, target: ManagedTarget) -> SyncResult:
        """Fetch the tip, make sure that document and tip belong together, and check it out."""
        self.log.phase("sync")
        if self.is_wanted:
            epoch, number = self.order.payload["asked"]
            revision = self.parts.mirrors.fetch(self.repository, asked=(epoch, number), deadline=self.deadline)
            self.parts.store.note_revision(self.order.run, revision.sha)
            sha = self._revision_of_documents(revision.sha)
            subject = revision.subject if sha == revision.sha else ""
            self._take_document_anew()
            self._refuse_the_same_again(sha)
        else:
            sha, subject = self.view.applied_revision, ""
        synced = self.parts.mirrors.checkout(
            self.repository,
            sha,
            self.tree,
            keep=self.order.item,
            deadline=self.deadline,
            applied=self.view.applied_revision or None,
        )
        self.log.line(f"{self.repository.url} {self.repository.ref} at {sha[:12]} {subject}")
        return SyncResult(tree=synced.tree, old=synced.old, new=synced.new, subject=subject)

    def _revision_of_documents(self, sha: str) -> str:
        """Return the revision to apply: an old document is never applied at a new revision of its own tree.

        Where the documents changed the source goes first. Where it was there already and could not use them, the target
        stays at the revision of the documents that hold for it, and is kept equal to that.
        """
        source = self.view.fields.get("source", "")
        item = self.parts.store.item(keys.source_item(source)) if self.view.fields.get("in_source") == "1" else None
        if item is None:
            return sha
        kept: dict[str, str] = json.loads(item.fields.get("kept") or "{}")
        documents = kept.get(self.order.item, item.revision)
        folder = item.fields.get("repo_path", "")
        if documents == sha or self.parts.mirrors.same_tree(self.repository, documents, sha, folder):
            return sha
        if documents and item.fields.get("seen_revision") == sha:
            self.log.line(f"its documents can't be used at {sha[:12]}: it stays at {documents[:12]}")
            return documents
        self.parts.work.request([item.item], Cause(trigger=Trigger.SOURCE, actor=self.order.item))
        message = f"the documents changed at {sha[:12]}; source '{source}' is asked to sync first"
        raise NotSyncedError(message)

    def _take_document_anew(self) -> None:
        """Read the target again: its source may have synced since this run began, and what we know is of before."""
        fetched = self.repository
        self.view = self.parts.store.item(self.order.item) or self.view
        if self.repository != fetched:
            message = f"its document moved to {self.repository.url} {self.repository.ref} while this run began"
            raise NotSyncedError(message)

    def _refuse_the_same_again(self, sha: str) -> None:
        stalled_at = self.order.payload.get("stalled_at", "")
        same = stalled_at == f"{sha} {self.view.fields.get('document_hash', '')}"
        if same and not _FORCING & set(self.order.payload.get("triggers", [])):
            message = f"stalled at {sha[:12]}: {self.view.message}"
            raise StillStalledError(message)

    def _backend(self) -> BackEnd:
        document, manifest, provider_config = self._documents()
        config = bind(
            document,
            provider_config,
            self.tree,
            manifest=manifest,
            home=self.parts.layout.home(self.order.item),
            secrets=self.parts.secrets,
        )
        return build_backend(config, self._tools())

    def _own(self, backend: BackEnd) -> None:
        """Make what the backend works on the target's own.

        Raises:
            OwnedElsewhereError: it belongs to another target: nothing of it was touched.
            OwnerLeavingError: the same, for as long as that one takes to go.

        """
        resource = backend.resource_key() if isinstance(backend, OwnsResource) else ""
        if not resource and "resources" not in self.view.fields:
            return
        guard = Guard(item=self.order.item, token=self.order.token, run=self.order.run)
        owner = self.parts.work.own(guard, resource)
        if not owner:
            return
        other = self.parts.store.item(owner)
        fields = other.fields if other is not None else {}
        if self.is_wanted and (fields.get("desired") == "absent" or {"stale", "token"} <= fields.keys()):
            raise OwnerLeavingError(f"{resource} belongs to '{owner}' until that is gone: waiting for it")
        ways_out = (
            "give one of them a state of its own, or remove one document"
            if self.is_wanted
            else (f"it is '{owner}' that would be torn down; to be rid of '{self.order.item}' alone, forget it")
        )
        done = "applied" if self.is_wanted else "destroyed"
        raise OwnedElsewhereError(f"{resource} belongs to target '{owner}', nothing was {done}: {ways_out}")

    def _documents(self) -> tuple[ResourceDocument, ManifestDocument | None, ProviderConfigDocument | None]:
        """Return what the target is made of: as declared now, for a destroy as it was applied last."""
        fields = self.view.fields
        if not self.is_wanted:
            document = resource_of(json.loads(fields["applied_document"]))
            return document, _manifest(fields["applied_manifest"]), _provider_config(fields["applied_provider_config"])
        document = resource_of(json.loads(fields["document"]))
        shared = self.parts.store.tree_documents(fields["source"])
        manifest = shared.get(f"manifest/{document.kind}")
        provider_config = shared.get(f"providerconfig/{document.kind}/{document.provider_config}")
        return document, _manifest(json.dumps(manifest)), _provider_config(json.dumps(provider_config))

    def _tools(self) -> Tools:
        marks = {"GITOPS_TARGET": self.order.item, "GITOPS_RUN": self.order.run}
        return Tools(
            runner=self.parts.runner(self.lock_fd),
            clock=self.parts.clock,
            env={**self.parts.environ, **marks},
            log=self.log,
            marker=StoredMarker(self.parts.store, self.order.item),
            secrets=self.parts.secrets,
            deadline=self.deadline,
            engine_locks=self.parts.layout.engine_locks,
        )


def resource_of(record: Mapping[str, Any]) -> ResourceDocument:
    """Return a stored target's document."""
    document = from_record(record)
    if not isinstance(document, ResourceDocument):
        message = f"a stored document is a {document.type}, not a resource: sync its source again"
        raise SpecError(message)
    return document


def _manifest(record: str) -> ManifestDocument | None:
    known = json.loads(record or "null")
    found = from_record(known) if known else None
    return found if isinstance(found, ManifestDocument) else None


def _provider_config(record: str) -> ProviderConfigDocument | None:
    known = json.loads(record or "null")
    found = from_record(known) if known else None
    return found if isinstance(found, ProviderConfigDocument) else None
