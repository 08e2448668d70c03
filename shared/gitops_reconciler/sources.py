"""Sources: which repositories declare targets. They are registered on the control machine, never in a tree."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from gitops_reconciler import keys
from gitops_reconciler.errors import SpecError
from gitops_reconciler.git.refs import check_branch
from gitops_reconciler.git.urls import check_url, repository_key, repository_keys
from gitops_reconciler.layout import DEFAULT_SOURCE
from gitops_reconciler.models import Name
from gitops_reconciler.outcomes import Trigger
from gitops_reconciler.settings import Settings, parse_duration
from gitops_reconciler.store.redis import RedisStore
from gitops_reconciler.work.base import SOURCE_KIND, SOURCE_POOL, Cause, ItemSpec, Work

_DEADLINE_SECONDS = 600.0


def _seconds(value: object) -> int:
    return round(parse_duration(value).total_seconds())


class Allow(BaseModel):
    """What a source's tree may ask for; None allows all. Credentials follow pools: a tree can't pick them freely."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    apps: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    pools: tuple[str, ...] | None = None
    provider_configs: tuple[str, ...] | None = None


class SourceRegistration(BaseModel):
    """One source: a repository, a branch, and the folder whose documents declare targets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    repo: str = Field(min_length=1, max_length=2048)
    branch: str = "main"
    path: str = "gitops"
    interval: Annotated[int, BeforeValidator(_seconds)] = Field(default=600, ge=0)
    """Seconds between two looks at the remote; 0: by push and by hand only."""
    allow: Allow = Allow()

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        parts = [part for part in path.replace("\\", "/").split("/") if part not in {"", "."}]
        if path.startswith(("/", "\\")) or ".." in parts:
            message = f"'{path}' must be a relative path without '..'"
            raise ValueError(message)
        return "/".join(parts)

    @property
    def ref(self) -> str:
        """The full ref of the branch."""
        return f"refs/heads/{self.branch}"


def watched_refs(url: str, ref: str) -> tuple[str, ...]:
    """Return the `repository key#ref` pairs by which a push to this repository is recognised."""
    return tuple(sorted(f"{key}#{ref}" for key in repository_keys(url)))


def register_source(store: RedisStore, work: Work, registration: SourceRegistration, settings: Settings) -> None:
    """Make a source known, or change it, and ask for its sync.

    Raises:
        SpecError: its URL or branch can't be used; nothing was written.

    """
    check_url(registration.repo, settings.git_allow_local)
    check_branch(registration.branch)
    owner = store.sources().get(registration.name)
    if owner is not None and not repository_keys(owner["repo"]) & repository_keys(registration.repo):
        message = (
            f"source '{registration.name}' is registered with another repository; "
            f"remove it first (`gitops source remove {registration.name}`), its targets stay"
        )
        raise SpecError(message)
    item = keys.source_item(registration.name)
    spec = ItemSpec(
        item=item,
        kind=SOURCE_KIND,
        pool=SOURCE_POOL,
        repository=repository_key(registration.repo),
        refs=watched_refs(registration.repo, registration.ref),
        schedule={"interval": registration.interval} if registration.interval else {},
        deadline_seconds=_DEADLINE_SECONDS,
        facts={"url": registration.repo, "ref": registration.ref, "repo_path": registration.path},
    )
    # In this order a crash never leaves a source that is known but that nothing will ever sync.
    work.register(spec, first_due_in_ms=registration.interval * 1000 or None)
    store.put_source(registration.name, registration.model_dump(mode="json"))
    work.request([item], Cause(trigger=Trigger.MANUAL, actor="source registered"))


def remove_source(store: RedisStore, work: Work, name: str) -> bool:
    """Forget a source. Its targets go on with what was declared last; False: there was none."""
    work.forget(keys.source_item(name))
    return store.drop_source(name)


def seed_default(store: RedisStore, work: Work, settings: Settings) -> bool:
    """Register the source `default` from the settings when a URL is set; settings seed it, later changes by API win.

    One that is known but has no item (a registration that was cut off) is registered again as it is known.
    """
    known = store.sources().get(DEFAULT_SOURCE)
    if known is not None:
        if store.item(keys.source_item(DEFAULT_SOURCE)) is not None:
            return False
        registration = SourceRegistration.model_validate(known)
    elif settings.repo_url is not None:
        registration = SourceRegistration(
            name=DEFAULT_SOURCE,
            repo=settings.repo_url,
            branch=settings.repo_branch,
            path=settings.repo_path,
            interval=settings.sync_interval_sec,
        )
    else:
        return False
    register_source(store, work, registration, settings)
    return True
