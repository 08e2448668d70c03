"""Entries become documents: what fits together across files is decided here, and everything else is refused."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from gitops_reconciler.errors import Reason
from gitops_reconciler.manifests.dependencies import references_of
from gitops_reconciler.manifests.documents import (
    APP_LABEL,
    CUSTOM_POOL,
    DEFAULT_SCRIPT_TIMEOUT,
    REACTOR_EVENTS,
    CommitStatusReaction,
    ManifestDocument,
    Origin,
    ProviderConfigDocument,
    Reaction,
    ReactorBindingDocument,
    ResourceDocument,
    TickReaction,
)
from gitops_reconciler.manifests.entries import Entry
from gitops_reconciler.manifests.expanding import Expander
from gitops_reconciler.manifests.fields import leads_out
from gitops_reconciler.manifests.known import Known, is_second, origin_of
from gitops_reconciler.manifests.problems import (
    Complaint,
    Where,
    complaints_of,
    did_you_mean,
    listed,
    on_one_line,
    shown,
)
from gitops_reconciler.manifests.references import holds_a_secret, secret_complaints
from gitops_reconciler.manifests.schedules import check_cron, check_time_zone
from gitops_reconciler.manifests.schema import SpecSchema, schema_complaints
from gitops_reconciler.manifests.scopes import Scope
from gitops_reconciler.manifests.specs import (
    KINDS_NOT_BUILT,
    RESERVED_KINDS,
    RESERVED_POOLS,
    SPECS,
    Spec,
    is_inline_inventory,
    merged,
)
from gitops_reconciler.manifests.written import (
    NOT_BUILT,
    WrittenEnvironment,
    WrittenManifest,
    WrittenProviderConfig,
    WrittenReaction,
    WrittenReactorBinding,
    WrittenResource,
)
from gitops_reconciler.models import Scripts


def read_manifest(entry: Entry, known: Known) -> None:
    """Take a manifest, or say what is wrong with it."""
    kind = entry.value.get("kind")
    if isinstance(kind, str) and is_second(entry, known, known.kinds_seen, kind, f"kind {shown(kind)}"):
        known.manifests.pop(kind, None)
    fields = dict(entry.value)
    if "scripts" in fields:
        fields["scripts"] = entry.refuse_not_built(fields["scripts"], NOT_BUILT["scripts"], ("scripts",))
    if not entry.is_valid:
        return
    written = entry.check(WrittenManifest, fields)
    if written is None:
        return
    if written.kind in RESERVED_KINDS:
        message = f"kind {shown(written.kind)} is one of our own: choose another name"
        entry.refuse(Complaint(where=("kind",), message=message))
    entry.refuse_all(schema_complaints(written.spec_schema, ("schema",)))
    for name, script in written.scripts:
        if script and holds_a_secret(script):
            message = f"'scripts.{name}' holds a secret in clear: take it from the spec, by reference"
            entry.refuse(Complaint(where=("scripts", name), message=message, reason=Reason.INVALID_SPEC))
    origin = origin_of(entry, written.metadata, known)
    if entry.is_valid:
        known.schemas[written.kind] = SpecSchema(written.spec_schema)
        known.manifests[written.kind] = ManifestDocument(
            origin=origin,
            kind=written.kind,
            spec_schema=written.spec_schema,
            scripts=Scripts(**dict(written.scripts)),
            timeout=written.timeout or DEFAULT_SCRIPT_TIMEOUT,
        )


def read_providerconfig(entry: Entry, known: Known) -> None:
    """Take a providerconfig, or say what is wrong with it."""
    key = (entry.value.get("kind"), entry.value.get("name"))
    if isinstance(key[0], str) and isinstance(key[1], str):
        what = f"providerconfig {shown(key[1])} of kind {shown(key[0])}"
        if is_second(entry, known, known.configs_seen, (key[0], key[1]), what):
            known.configs.pop((key[0], key[1]), None)
    fields = dict(entry.value)
    if "config" in fields:
        fields["config"] = entry.refuse_not_built(fields["config"], NOT_BUILT["config"], ("config",))
    written = entry.check(WrittenProviderConfig, fields)
    if written is None or not _is_known_kind(entry, written.kind, known):
        return
    settings = {name: value for name, value in written.config.items() if name != "env"}
    environment = entry.check(WrittenEnvironment, {"env": written.config.get("env", {})}, ("config",))
    spec = SPECS.get(written.kind)
    entry.refuse_all(secret_complaints(written.config, ("config",), {*spec.SECRET_FIELDS, "env"} if spec else None))
    if spec is not None:
        entry.refuse_all(_partial_complaints(spec, settings))
    origin = origin_of(entry, written.metadata, known)
    if entry.is_valid and environment is not None:
        config = {**settings, "env": environment.env} if environment.env else settings
        known.configs[written.kind, written.name] = ProviderConfigDocument(
            origin=origin, kind=written.kind, name=written.name, config=config
        )


def _partial_complaints(spec: type[Spec], settings: Mapping[str, Any]) -> list[Complaint]:
    """Check settings of which any may be missing."""
    try:
        spec.model_validate(settings)
    except ValidationError as error:
        found = zip(error.errors(), complaints_of(error, spec, ("config",)), strict=True)
        return [complaint for details, complaint in found if details["type"] != "missing"]
    return []


def read_reactorbinding(entry: Entry, known: Known) -> None:
    """Take a reactorbinding, or say what is wrong with it."""
    name = entry.value.get("name")
    if isinstance(name, str):
        what = f"reactorbinding {shown(name)}"
        if is_second(entry, known, known.bindings_seen, name, what, where=("name",)):
            known.bindings.pop(name, None)
    written = entry.check(WrittenReactorBinding, entry.value)
    if written is None:
        return
    entry.refuse_all(secret_complaints(entry.value.get("do"), ("do",)))
    origin = origin_of(entry, written.metadata, known)
    if entry.is_valid:
        known.bindings[written.name] = ReactorBindingDocument(
            origin=origin,
            name=written.name,
            on=tuple(event for event in REACTOR_EVENTS if event in written.on),
            select=written.select,
            do=tuple(map(_reaction, written.do)),
        )


def _reaction(written: WrittenReaction) -> Reaction:
    tick, status = written.tick, written.commit_status
    return Reaction(
        notify=written.notify,
        tick=None if tick is None else TickReaction(select=tick.select),
        commit_status=None if status is None else CommitStatusReaction(token=status.token, context=status.context),
    )


def read_resource(entry: Entry, known: Known, scope: Scope | None, expander: Expander) -> None:
    """Take a resource, or the several of a `for_each`, or say what is wrong with it.

    Below an invalid scope file nothing is taken.
    """
    entry.refuse_not_built(entry.value, NOT_BUILT["resource"])
    if "for_each" not in entry.value:
        _read_one(entry, entry.value, known, scope)
        return
    expansions = expander.expand(entry)
    if entry.is_valid and not expansions:
        entry.check(WrittenResource, expander.sample(entry.value))
    for expansion in expansions:
        known.matches[expansion.name] = expansion.match
        with entry.about(expansion.match):
            _read_one(entry, expansion.value, known, scope)
    if not entry.is_valid:
        for expansion in expansions:
            if known.names_seen[expansion.name] is entry:
                known.resources.pop(expansion.name, None)


def _read_one(entry: Entry, value: Mapping[str, Any], known: Known, scope: Scope | None) -> None:
    name = value.get("name")
    if isinstance(name, str):
        entry.names.append(name)
        is_second(entry, known, known.names_seen, name, f"name {shown(name)}", where=("name",))
    written = entry.check(
        WrittenResource, {key: item for key, item in value.items() if key not in NOT_BUILT["resource"]}
    )
    if written is None or (scope is not None and not scope.is_valid):
        return
    _check_schedule(entry, written)
    if written.pool in RESERVED_POOLS:
        message = f"pool {shown(written.pool)} is our own: choose another"
        entry.refuse(Complaint(where=("pool",), message=message))
    labels = _labels(entry, written, scope)
    expanded = written.name if value is not entry.value else ""
    origin = origin_of(entry, written.metadata, known, "" if scope is None else scope.folder, expanded=expanded)
    if not _is_known_kind(entry, written.kind, known):
        return
    config = _config(entry, written, known, scope)
    if entry.is_valid:
        _check_spec(entry, written, known, config)
    if entry.is_valid:
        references, inputs = references_of(written, origin.source)
        known.references[written.name] = references
        known.resources[written.name] = _resource(written, origin, scope, labels, config).model_copy(
            update={"depends_on": tuple(sorted({reference.item for reference in references})), "inputs": inputs}
        )


def _resource(
    written: WrittenResource,
    origin: Origin,
    scope: Scope | None,
    labels: Mapping[str, str],
    config: ProviderConfigDocument | None,
) -> ResourceDocument:
    interval = written.interval
    if interval is None and written.cron is None and scope is not None:
        interval = scope.interval
    is_declared = written.kind not in SPECS
    return ResourceDocument(
        origin=origin,
        kind=written.kind,
        name=written.name,
        is_declared=is_declared,
        app="" if scope is None else scope.app,
        path=written.path,
        repo=written.repo,
        ref=_ref(written),
        interval=interval,
        cron=written.cron,
        time_zone=written.time_zone or "UTC",
        timeout=written.timeout,
        pool=written.pool or (CUSTOM_POOL if is_declared else written.kind),
        labels=labels,
        provider_config=None if config is None else config.name,
        suspend=written.suspend,
        watch=None if written.watch is None else tuple(sorted(set(written.watch))),
        retry_interval=written.retry_interval,
        spec=written.spec,
    )


def _ref(written: WrittenResource) -> str:
    if written.repo is None:
        return ""
    if written.commit is not None:
        return written.commit
    return f"refs/tags/{written.tag}" if written.tag is not None else f"refs/heads/{written.branch or 'main'}"


def _labels(entry: Entry, written: WrittenResource, scope: Scope | None) -> dict[str, str]:
    if scope is not None:
        return {**scope.labels, **written.labels, APP_LABEL: scope.app}
    if APP_LABEL in written.labels:
        message = f"label '{APP_LABEL}' is set by a gitops.yaml above the document, never by hand"
        entry.refuse(Complaint(where=("labels", APP_LABEL), message=message, is_about_key=True))
    return dict(written.labels)


def _check_schedule(entry: Entry, written: WrittenResource) -> None:
    checks: tuple[tuple[str, str | None, Callable[[str], None]], ...] = (
        ("cron", written.cron, check_cron),
        ("time_zone", written.time_zone, check_time_zone),
    )
    for name, value, check in checks:
        try:
            if value is not None:
                check(value)
        except ValueError as error:
            entry.refuse(Complaint(where=(name,), message=f"'{name}': {error}"))


def _is_known_kind(entry: Entry, kind: str, known: Known) -> bool:
    if kind in SPECS or kind in known.manifests:
        return True
    names = {*SPECS, *known.manifests}
    reason = Reason.INVALID_DOCUMENT
    if kind in KINDS_NOT_BUILT:
        message = f"kind '{kind}' is not built in this version (it comes later; there are: {listed(names)})"
        reason = Reason.NOT_BUILT
    elif kind in known.kinds_seen:
        first = on_one_line(known.kinds_seen[kind].path)
        message = f"kind {shown(kind)} is declared in {first}, which is invalid or not the only one"
    else:
        message = f"unknown kind {shown(kind)} ({did_you_mean(kind, names)}must be one of: {listed(names)})"
    entry.refuse(Complaint(where=("kind",), message=message, reason=reason))
    return False


def _config(entry: Entry, written: WrittenResource, known: Known, scope: Scope | None) -> ProviderConfigDocument | None:
    """Return the providerconfig that the document names, or the one of its scope where there is one of its kind."""
    name = written.provider_config or (scope.provider_config if scope is not None else None)
    if name is None:
        return None
    key = (written.kind, name)
    if key in known.configs:
        return known.configs[key]
    if key in known.configs_seen:
        first = on_one_line(known.configs_seen[key].path)
        message = f"provider config {shown(name)} is declared in {first}, which is invalid or not the only one"
    elif written.provider_config is None:
        return None
    else:
        others = sorted(kind for kind, other in known.configs_seen if other == name)
        names = [other for kind, other in known.configs if kind == written.kind]
        hint = (
            f"it is one of kind {listed(others)}"
            if others
            else f"{did_you_mean(name, names)}there are: {listed(names)}"
        )
        message = f"unknown provider config {shown(name)} of kind {shown(written.kind)} ({hint})"
    entry.refuse(Complaint(where=("provider_config",), message=message))
    return None


def _check_spec(entry: Entry, written: WrittenResource, known: Known, config: ProviderConfigDocument | None) -> None:
    spec = SPECS.get(written.kind)
    secrets = list(secret_complaints(written.spec, ("spec",), spec.SECRET_FIELDS if spec else None))
    if secrets:
        # Nothing else is said about the spec, so that no message shows a secret.
        entry.refuse_all(secrets)
        return
    settings = {name: value for name, value in (config.config if config else {}).items() if name != "env"}
    whole = merged(settings, written.spec)
    if spec is None:
        found = known.schemas[written.kind].complaints(whole, ("spec",))
    else:
        found = _spec_complaints(spec, whole, written.path)
    entry.refuse_all(_blamed(complaint, written, config) for complaint in found)


def _spec_complaints(spec: type[Spec], whole: Mapping[str, Any], path: str) -> list[Complaint]:
    try:
        checked = spec.model_validate(whole)
    except ValidationError as error:
        return complaints_of(error, spec, ("spec",))
    found = []
    for name in sorted(spec.PATH_FIELDS):
        value = getattr(checked, name)
        if isinstance(value, str) and not is_inline_inventory(value) and leads_out(posixpath.join(path, value)):
            message = f"'spec.{name}': {shown(value)} leaves the repository (it is relative to 'path', {shown(path)})"
            found.append(Complaint(where=("spec", name), message=message))
    return found


def _blamed(complaint: Complaint, written: WrittenResource, config: ProviderConfigDocument | None) -> Complaint:
    """Say so where a fault of a spec comes from its providerconfig."""
    if config is None or _stands_in(written.spec, complaint.where[1:]):
        return complaint
    message = f"{complaint.message} (from provider config {shown(config.name)}, {config.origin})"
    return Complaint(where=("provider_config",), message=message, reason=complaint.reason)


def _stands_in(value: Any, where: Where) -> bool:
    for part in where:
        is_there = (
            part in value if isinstance(value, Mapping) else isinstance(value, list) and part in range(len(value))
        )
        if not is_there:
            return False
        value = value[part]
    return True
