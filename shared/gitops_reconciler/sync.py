"""A source's sync: it only marks. Documents go to the store, what left the tree goes stale, ticks are asked for.

It is a leased work item like a tick: every write carries the lease's token and is refused once that is lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from gitops_reconciler.backends.base import RunLog
from gitops_reconciler.clock import Clock, Deadline
from gitops_reconciler.errors import LeaseLostError, Reason, SourceEmptyError
from gitops_reconciler.git.base import Mirrors, Repository, Revision
from gitops_reconciler.git.urls import repository_key
from gitops_reconciler.manifests.documents import ResourceDocument, to_record
from gitops_reconciler.manifests.problems import DocumentProblem
from gitops_reconciler.manifests.tree import Tree, read_tree
from gitops_reconciler.outcomes import NextAsk, Outcome, RunState, TargetStatus, Trigger, Verb
from gitops_reconciler.sources import Allow, SourceRegistration, watched_refs
from gitops_reconciler.store.redis import ItemView, RedisStore
from gitops_reconciler.work.base import Cause, Guard, ItemSpec, Mark, Suspension, Work

_SHOWN_PROBLEMS = 10
_ASKS_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a sync did to one document."""

    verb: Verb
    item: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TickDefaults:
    """What holds for a target whose document says nothing."""

    interval: timedelta
    deadline: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOrder:
    """The claimed run of a source."""

    item: str
    guard: Guard
    asked: tuple[str, int]
    deadline: Deadline
    triggers: frozenset[Trigger]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSync:
    """The run of a source."""

    store: RedisStore
    work: Work
    mirrors: Mirrors
    clock: Clock
    log: RunLog
    defaults: TickDefaults
    first_due_in_ms: Callable[[dict[str, Any], str], int | None]
    """When a new or changed schedule is due first; None: by hand and by push only."""
    seen: list[str] = field(default_factory=list)
    """The revision that this sync looked at, also when it then failed."""

    def run(self, order: SyncOrder) -> Outcome:
        """Read the tree at the remote's tip and bring the store up to it. Errors of git are raised."""
        started = self.clock.now()
        name = order.item.partition(":")[2]
        registration = SourceRegistration.model_validate(self.store.sources()[name])
        repository = Repository(url=registration.repo, ref=registration.ref)
        self.log.phase("sync")
        revision = self.mirrors.fetch(repository, asked=order.asked, deadline=order.deadline)
        self.seen.append(revision.sha)
        self.log.line(f"{repository.url} {repository.ref} at {revision.sha[:12]} {revision.subject}")
        made = self.mirrors.authorship(repository, revision.sha)
        if made is not None:
            self.log.line(f"by {made.name}, {made.at:%Y-%m-%d %H:%M %z}")
        tree = self._read(registration, repository, revision)
        cause = Cause(trigger=_trigger(order), actor=order.item)
        writer = _Writer(
            store=self.store,
            work=self.work,
            registration=registration,
            revision=revision,
            cause=cause,
            guard=order.guard,
            defaults=self.defaults,
            first_due_in_ms=self.first_due_in_ms,
        )
        before = self.store.item(order.item)
        changes, problems = writer.write(tree)
        kept = _kept(writer.left_alone, before)
        for change in changes:
            if change.verb is not Verb.UNCHANGED:
                self.log.line(f"{change.verb.value:<10} {change.item} {change.path}")
        for problem in problems:
            self.log.line(str(problem))
        outcome = _outcome(order.item, revision, changes, problems, kept)
        author = made.name if made is not None else ""
        return replace(outcome, author=author, kept=kept, started_at=started, ended_at=self.clock.now())

    def _read(self, registration: SourceRegistration, repository: Repository, revision: Revision) -> Tree:
        folder = registration.path
        paths = self.mirrors.list_files(repository, revision.sha, folder)
        files = self.mirrors.read_files(repository, revision.sha, list(paths))
        below = partial(self.mirrors.list_files, repository, revision.sha)
        tree = read_tree(files, source=registration.name, repository_files=below)
        if not tree.file_count:
            message = f"no documents under '{folder or '.'}' of {repository.url} at {revision.sha[:12]}: ignored"
            raise SourceEmptyError(message)
        return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Brings the store up to one tree."""

    store: RedisStore
    work: Work
    registration: SourceRegistration
    revision: Revision
    cause: Cause
    guard: Guard
    defaults: TickDefaults
    first_due_in_ms: Callable[[dict[str, Any], str], int | None]
    left_alone: list[str] = field(default_factory=list)
    """Targets that the tree says nothing valid of: neither changed nor stale."""

    def write(self, tree: Tree) -> tuple[list[Change], list[DocumentProblem]]:
        mine = self.registration.name
        known = {view.item: view for view in self.store.targets_of(mine)}
        refused = [problem for document in tree.resources if (problem := self._refusal(document, known))]
        problems = [*tree.problems, *refused]
        frozen = tree.frozen | {problem.scope for problem in refused}
        shared = self._write_shared(tree)
        live = [document for document in tree.resources if document.origin.scope not in frozen]
        declared = {document.target for document in tree.resources}
        gone = [view for view in known.values() if view.item not in declared and not _is_kept(view, tree)]
        changes = self._go_stale(gone, frozen)  # first: one that only got another name takes over what that leaves
        changes += [self._write_one(document, shared, known.get(document.target)) for document in live]
        self._ask(changes, known)
        said = {change.item for change in changes}
        self.left_alone.extend(name for name, view in known.items() if name not in said and "stale" not in view.fields)
        return changes, problems

    def _refusal(self, document: ResourceDocument, known: dict[str, ItemView]) -> DocumentProblem | None:
        before = known.get(document.target)
        if before is not None and before.kind != document.kind:
            return _problem(
                document,
                f"target '{document.name}' is of kind '{before.kind}', which can't become '{document.kind}' "
                "while it exists (destroy or forget it first, or use another name)",
            )
        return _not_allowed(document, self.registration.allow)

    def _write_shared(self, tree: Tree) -> dict[str, dict[str, Any]]:
        shared = {f"manifest/{manifest.kind}": to_record(manifest) for manifest in tree.manifests}
        shared |= {f"providerconfig/{config.kind}/{config.name}": to_record(config) for config in tree.providerconfigs}
        stored = self.store.tree_documents(self.registration.name)
        if tree.problems:  # one that can't be read now may be what a frozen target is made of
            shared = {**stored, **shared}
        if shared != stored:
            self._guarded(self.work.put_tree(self.registration.name, shared, guard=self.guard))
        return shared

    def _write_one(
        self, document: ResourceDocument, shared: dict[str, dict[str, Any]], before: ItemView | None
    ) -> Change:
        item, path = document.target, document.origin.path
        spec = self._spec(document, shared)
        is_known = before is not None and all(before.fields.get(name) == value for name, value in spec.stored().items())
        is_resumed = bool(document.suspend) and before is not None and "suspended" not in before.fields
        if is_known and not is_resumed and before is not None and "stale" not in before.fields:
            return Change(verb=Verb.UNCHANGED, item=item, path=path)
        verb = _verb(spec, before)
        written = self.work.register(
            spec,
            first_due_in_ms=self.first_due_in_ms(spec.schedule, spec.item),
            guard=self.guard,
            cause=None if verb is Verb.MOVED else self.cause,
            suspend=_suspension(document, before, self.guard.item),
        )
        self._guarded(written)
        return Change(verb=verb, item=item, path=path)

    def _spec(self, document: ResourceDocument, shared: dict[str, dict[str, Any]]) -> ItemSpec:
        own = Repository(url=self.registration.repo, ref=self.registration.ref)
        repository = document.repository(own)
        record = to_record(document)
        needed = (
            shared.get(f"manifest/{document.kind}"),
            shared.get(f"providerconfig/{document.kind}/{document.provider_config}"),
        )
        timeout = document.timeout or self.defaults.deadline
        return ItemSpec(
            item=document.target,
            kind=document.kind,
            pool=document.pool,
            repository=repository_key(repository.url),
            refs=watched_refs(repository.url, repository.ref),
            schedule=document.schedule(self.defaults.interval),
            deadline_seconds=timeout.total_seconds(),
            labels=dict(document.labels),
            facts={
                "source": document.origin.source,
                "scope": document.origin.scope,
                "id": document.origin.id,
                "app": document.app,
                "suspend": {True: "1", False: "0", None: ""}[document.suspend],
                "path": document.origin.path,
                "url": repository.url,
                "ref": repository.ref,
                "in_source": "1" if repository == own else "0",
                "document": json.dumps(record, sort_keys=True),
                "document_hash": _digest(record, *needed),
            },
        )

    def _go_stale(self, gone: Iterable[ItemView], frozen: AbstractSet[str]) -> list[Change]:
        changes = []
        for view in gone:
            path = view.fields.get("path", "")
            if "stale" in view.fields or view.status == "destroyed" or view.fields.get("scope", "") in frozen:
                continue
            reason = f"its document {path} is gone at {self.revision.sha[:12]}"
            self._guarded(self.work.mark(view.item, Mark.STALE, actor=self.guard.item, reason=reason, guard=self.guard))
            changes.append(Change(verb=Verb.STALE, item=view.item, path=path))
        return changes

    def _ask(self, changes: Sequence[Change], known: dict[str, ItemView]) -> None:
        """Ask for what lies in this repository and was not seen at this tip; what changed was asked for already."""
        tree_changed = any(change.verb is not Verb.UNCHANGED for change in changes)
        behind = [
            change.item
            for change in changes
            if change.verb in {Verb.UNCHANGED, Verb.MOVED}
            and self._is_behind(known.get(change.item), tree_changed=tree_changed)
        ]
        for start in range(0, len(behind), _ASKS_AT_ONCE):
            self.work.request(behind[start : start + _ASKS_AT_ONCE], self.cause)

    def _is_behind(self, view: ItemView | None, *, tree_changed: bool) -> bool:
        """Whether nobody will look at this tip for it: a run under way may have found its document too old for it."""
        if view is None or view.fields.get("in_source") != "1" or view.revision == self.revision.sha:
            return False
        if "token" in view.fields:
            return tree_changed
        return view.requested == view.observed or view.fields.get("status") == TargetStatus.STALLED

    @staticmethod
    def _guarded(written: bool) -> None:  # noqa: FBT001  # the answer of a guarded write
        if not written:
            message = "the lease of this sync was lost; nothing more is written"
            raise LeaseLostError(message)


def _kept(names: list[str], before: ItemView | None) -> dict[str, str]:
    """Return for targets that were left alone the revision whose documents hold for them: the last good one."""
    fields = before.fields if before is not None else {}
    earlier: dict[str, str] = json.loads(fields.get("kept") or "{}")
    revision = before.revision if before is not None else ""
    return {name: held for name in names if (held := earlier.get(name, revision))}


def _is_kept(view: ItemView, tree: Tree) -> bool:
    """Whether an undeclared target stays as it is, since the tree around it can't be trusted."""
    name = view.item.rpartition("/")[2]
    return tree.keeps(name=name, app=view.fields.get("app", ""), scope=view.fields.get("scope", ""))


def _digest(document: dict[str, Any], *needed: dict[str, Any] | None) -> str:
    """Return a hash of all that makes a target's config, wherever it is written: the same again need not be tried."""
    contents = [
        {name: value for name, value in (part or {}).items() if name != "origin"} for part in (document, *needed)
    ]
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _problem(document: ResourceDocument, message: str) -> DocumentProblem:
    origin = document.origin
    return DocumentProblem(path=origin.path, line=origin.line, column=1, message=message, scope=origin.scope)


def _trigger(order: SyncOrder) -> Trigger:
    """Return why the ticks that follow are asked for: a push goes on being a push."""
    return Trigger.WEBHOOK if Trigger.WEBHOOK in order.triggers else Trigger.SOURCE


def _verb(spec: ItemSpec, before: ItemView | None) -> Verb:
    if before is None:
        return Verb.CREATED
    is_same = before.fields.get("document_hash") == spec.facts["document_hash"] and "stale" not in before.fields
    return Verb.MOVED if is_same and before.fields.get("path") != spec.facts["path"] else Verb.CONFIGURED


def _suspension(document: ResourceDocument, before: ItemView | None, actor: str) -> Suspension | None:
    """Three-way: what the tree declares wins; what it never declared is the operators' to say."""
    wanted = document.suspend
    if wanted is None and before is not None and before.fields.get("suspend") == "1":
        wanted = False
    return None if wanted is None else Suspension(wanted=wanted, actor=actor, reason="declared in its document")


def _not_allowed(document: ResourceDocument, allow: Allow) -> DocumentProblem | None:
    asked = {
        "kinds": document.kind,
        "pools": document.pool,
        "apps": document.app,
        "provider_configs": document.provider_config,
    }
    for what, value in asked.items():
        allowed = getattr(allow, what)
        if allowed is not None and value and value not in allowed:
            return _problem(
                document,
                f"this source may not use {what.removesuffix('s').replace('_', ' ')} '{value}' "
                f"(allowed: {', '.join(allowed) or 'none'})",
            )
    return None


def _outcome(
    item: str,
    revision: Revision,
    changes: list[Change],
    problems: list[DocumentProblem],
    kept: dict[str, str],
) -> Outcome:
    counts = {verb.value: sum(change.verb is verb for change in changes) for verb in Verb} | {"left alone": len(kept)}
    summary = ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing declared"
    has_changed = any(change.verb is not Verb.UNCHANGED for change in changes)
    state = RunState.CHANGED if has_changed else RunState.NO_CHANGE
    reason, message = Reason.APPLIED, summary
    if problems:
        state, reason = RunState.FAILED, Reason.INVALID_DOCUMENT
        shown = "; ".join(str(problem) for problem in problems[:_SHOWN_PROBLEMS])
        message = f"{len(problems)} invalid, their scopes are left as they are: {shown} ({summary})"
    return Outcome(
        target=item,
        state=state,
        reason=reason,
        message=message,
        revision=revision.sha,
        subject=revision.subject,
        next_ask=NextAsk.INTERVAL,
        was_applied=True,
    )
