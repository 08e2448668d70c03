"""What a run process does: read the item's own state, sync, apply, and say in one JSON object what came of it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gitops_reconciler import keys
from gitops_reconciler.backends.base import Tools
from gitops_reconciler.backends.registry import build_backend
from gitops_reconciler.clock import Clock, Deadline
from gitops_reconciler.errors import NotSyncedError, SpecError, StillStalledError, UnknownTargetError
from gitops_reconciler.git.base import Mirrors, Repository, SyncResult
from gitops_reconciler.layout import Layout
from gitops_reconciler.locks.base import Held
from gitops_reconciler.logs import RunLogWriter
from gitops_reconciler.manifests.binding import bind
from gitops_reconciler.manifests.documents import (
    ManifestDocument,
    ProviderConfigDocument,
    ResourceDocument,
    from_record,
)
from gitops_reconciler.models import BackEnd, ManagedTarget, Status
from gitops_reconciler.outcomes import Outcome, Trigger, describe_error, reason_of_error, state_of_error
from gitops_reconciler.processes import Runner
from gitops_reconciler.reconcile import Reconciler
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.runs.ending import outcome_to_line
from gitops_reconciler.secrets import Secrets
from gitops_reconciler.store.redis import ItemView, RedisStore
from gitops_reconciler.supervise.order import Order
from gitops_reconciler.sync import SourceSync, SyncOrder, TickDefaults
from gitops_reconciler.work.base import SOURCE_KIND, Cause, Guard, Work

_FORCING = {Trigger.MANUAL.value, Trigger.WEBHOOK.value, Trigger.SOURCE.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What a run is made of; wiring builds it inside the run process."""

    store: RedisStore
    work: Work
    mirrors: Mirrors
    layout: Layout
    clock: Clock
    secrets: Secrets
    redactor: Redactor
    runner: Callable[[int], Runner]
    """Makes the command runner of a run, given the descriptor of the target's flock."""
    environ: Mapping[str, str]
    """What tools start with."""
    defaults: TickDefaults


@dataclass(slots=True)
class _Said:
    """Records of the fleet go through the pipe to the supervisor, who alone writes with the lease's token."""

    outcome: Outcome | None = None

    def record(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def attempted(self, outcome: Outcome) -> None:
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class _AlreadyHeld:
    """The lease was claimed by the worker and is kept by the supervisor."""

    token: int

    @contextmanager
    def hold(self, kind: str, target: str) -> Iterator[Held | None]:
        yield Held(kind=kind, target=target, token=self.token)


@dataclass(frozen=True, slots=True)
class _StoredMarker:
    store: RedisStore
    target: str

    def get(self) -> str | None:
        return self.store.marker(self.target)

    def set(self, value: str | None) -> None:
        self.store.set_marker(self.target, value)


@dataclass
class LateBackend:
    """A backend that is bound only once the checkout is there; implements `BackEnd`."""

    kind: str
    build: Callable[[], BackEnd]

    @cached_property
    def _built(self) -> BackEnd:
        return self.build()

    def apply(self) -> Status:
        """Apply."""
        return self._built.apply()

    def destroy(self) -> Status:
        """Destroy."""
        return self._built.destroy()

    def get_outputs(self) -> dict[str, Any]:
        """Return the outputs."""
        return self._built.get_outputs()


def run_order(order: Order, lock_fd: int, parts: RunParts) -> dict[str, Any]:
    """Do the run that was ordered; returns the line for the supervisor, whatever happens."""
    log = RunLogWriter(sys.stdout, parts.redactor)
    document_hash = ""
    try:
        view = parts.store.item(order.item)
        if view is None:
            message = f"'{order.item}' is not registered any more"
            raise UnknownTargetError(message)
        document_hash = view.fields.get("document_hash", "")
        if order.kind == SOURCE_KIND:
            outcome = _source_sync(parts, log).run(_sync_order(order))
        else:
            run = TargetRun(order=order, view=view, parts=parts, log=log, lock_fd=lock_fd)
            outcome = run.run()
            document_hash = run.view.fields.get("document_hash", "")
    except Exception as error:  # noqa: BLE001  # the outer edge of a run process: the supervisor must get a line
        log.line("".join(traceback.format_exception(error)))
        outcome = _outcome_of_error(order.item, error)
    log.line(f"{outcome.state.value}: {outcome.message}")
    line = outcome_to_line(
        outcome, tools=log.tools, document_hash=document_hash, digest=outputs_digest(outcome.outputs)
    )
    redacted: dict[str, Any] = parts.redactor.value(line)
    return redacted


def _source_sync(parts: RunParts, log: RunLogWriter) -> SourceSync:
    return SourceSync(
        store=parts.store,
        work=parts.work,
        mirrors=parts.mirrors,
        clock=parts.clock,
        log=log,
        defaults=parts.defaults,
    )


def _sync_order(order: Order) -> SyncOrder:
    epoch, number = order.payload["asked"]
    return SyncOrder(
        item=order.item,
        guard=Guard(item=order.item, token=order.token, run=order.run),
        asked=(epoch, number),
        deadline=Deadline(at=order.claimed_at + order.deadline_seconds),
        triggers=frozenset(Trigger(name) for name in order.payload["triggers"]),
    )


def _outcome_of_error(item: str, error: Exception) -> Outcome:
    state, next_ask = state_of_error(error)
    return Outcome(
        target=item, state=state, reason=reason_of_error(error), message=describe_error(error), next_ask=next_ask
    )


def resource_of(record: Mapping[str, Any]) -> ResourceDocument:
    """Return a stored target's document."""
    document = from_record(record)
    if not isinstance(document, ResourceDocument):
        message = f"a stored document is a {document.type}, not a resource: sync its source again"
        raise SpecError(message)
    return document


def provider_config_of(
    shared: Mapping[str, Mapping[str, Any]], document: ResourceDocument
) -> ProviderConfigDocument | None:
    """Return the providerconfig that a target names, out of its source's shared documents."""
    record = shared.get(f"providerconfig/{document.kind}/{document.provider_config}")
    found = from_record(record) if record else None
    return found if isinstance(found, ProviderConfigDocument) else None


def manifest_of(shared: Mapping[str, Mapping[str, Any]], document: ResourceDocument) -> ManifestDocument | None:
    """Return the manifest that declares a target's kind, out of its source's shared documents."""
    record = shared.get(f"manifest/{document.kind}")
    found = from_record(record) if record else None
    return found if isinstance(found, ManifestDocument) else None


def outputs_digest(outputs: dict[str, Any] | None) -> str:
    """Return a digest that changes exactly when the outputs do; empty when they are not known."""
    if outputs is None:
        return ""
    text = json.dumps(outputs, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


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
        said = _Said()
        reconciler = Reconciler(
            locks=_AlreadyHeld(self.order.token),
            syncer=self,
            records=said,
            clock=self.parts.clock,
            reads_outputs=True,
        )
        target = ManagedTarget(
            name=self.order.item.rpartition("/")[2],
            backend=LateBackend(self.view.kind, self._backend),
            repo=self.tree,
            notify=lambda _name, _status: None,  # the completion writes the event that the notifier reads
        )
        wanted = self.order.payload.get("is_wanted", True)
        outcome = reconciler.tick(target) if wanted else reconciler.destroy(target)
        return said.outcome or outcome

    @property
    def tree(self) -> Path:
        """The target's persistent checkout."""
        return self.parts.layout.tree(self.order.item)

    @property
    def repository(self) -> Repository:
        """Where the target's files come from."""
        return Repository(url=self.view.fields["url"], ref=self.view.fields["ref"])

    def sync(self, target: ManagedTarget) -> SyncResult:
        """Fetch the tip, make sure that document and tip belong together, and check it out."""
        self.log.phase("sync")
        wanted = self.order.payload.get("is_wanted", True)
        if wanted:
            epoch, number = self.order.payload["asked"]
            revision = self.parts.mirrors.fetch(self.repository, asked=(epoch, number), deadline=self.deadline)
            self._require_documents_of(revision.sha)
            self._take_document_anew()
            self._refuse_the_same_again(revision.sha)
            sha, subject = revision.sha, revision.subject
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

    def _require_documents_of(self, sha: str) -> None:
        """Refuse to apply an old document at a new revision of its own tree: the source goes first."""
        source = self.view.fields.get("source", "")
        if self.view.fields.get("in_source") != "1":
            return
        item = self.parts.store.item(keys.source_item(source))
        if item is None or item.revision == sha:
            return
        folder = item.fields.get("repo_path", "")
        if self.parts.mirrors.same_tree(self.repository, item.revision, sha, folder):
            return
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
        wanted = self.order.payload.get("is_wanted", True)
        stored = self.view.fields["document"] if wanted else self.view.fields["applied_document"]
        document = resource_of(json.loads(stored))
        shared = self.parts.store.tree_documents(self.view.fields["source"])
        config = bind(
            document,
            provider_config_of(shared, document),
            self.tree,
            manifest=manifest_of(shared, document),
            home=self.parts.layout.home(self.order.item),
            secrets=self.parts.secrets,
        )
        return build_backend(config, self._tools())

    def _tools(self) -> Tools:
        marks = {"GITOPS_TARGET": self.order.item, "GITOPS_RUN": self.order.run}
        return Tools(
            runner=self.parts.runner(self.lock_fd),
            clock=self.parts.clock,
            env={**self.parts.environ, **marks},
            log=self.log,
            marker=_StoredMarker(self.parts.store, self.order.item),
            secrets=self.parts.secrets,
            deadline=self.deadline,
        )


def tool_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what tools may see of this worker's environment: no setting and no secret of ours."""
    return {name: value for name, value in environ.items() if not name.startswith(("GITOPS_", "GRID_"))}
