"""Documents as people write them: every field that this version has, and the names of those that it does not."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gitops_reconciler.manifests.fields import (
    Branch,
    Commit,
    DocumentName,
    Environment,
    Interval,
    Labels,
    RepositoryPath,
    RepositoryUrl,
    Span,
    Switch,
    Tag,
    Text,
)

TYPES: Final = ("manifest", "providerconfig", "reactorbinding", "resource")

NOT_BUILT: Final[dict[str, frozenset[str]]] = {
    "resource": frozenset({"watch", "depends_on", "inputs", "for_each", "retry_interval"}),
    "manifest": frozenset(),
    "providerconfig": frozenset(),
    "scope": frozenset({"max_prune"}),
    "scripts": frozenset({"read", "create", "update", "delete"}),
    "config": frozenset({"role_arn"}),
}
"""Fields of DESIGN section 5 whose behaviour comes later: refused with that reason, never ignored."""


class Written(BaseModel):
    """No field that does not exist, and no value that has to be guessed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class WrittenMetadata(Written):
    """What is known of a document beside what it declares."""

    id: str | None = None
    """A UUID that stays the same when the file moves; without it the path makes one."""


class WrittenResource(Written):
    """`type: resource`: one target."""

    type: Literal["resource"]
    kind: str
    name: DocumentName
    metadata: WrittenMetadata = WrittenMetadata()
    path: RepositoryPath = "."
    """Where the declaration lies, from the repository's root; paths in `spec` are relative to it."""
    repo: RepositoryUrl | None = None
    branch: Branch | None = None
    tag: Tag | None = None
    commit: Commit | None = None
    interval: Interval | None = None
    cron: Text | None = None
    time_zone: Text | None = None
    timeout: Span | None = None
    pool: DocumentName | None = None
    labels: Labels = Field(default_factory=dict)
    provider_config: DocumentName | None = None
    suspend: Switch | None = None
    spec: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        pinned = [name for name in ("branch", "tag", "commit") if getattr(self, name) is not None]
        if len(pinned) > 1:
            message = f"only one of {', '.join(pinned)} can be followed"
            raise ValueError(message)
        if pinned and self.repo is None:
            message = f"'{pinned[0]}' goes with 'repo'; a document without 'repo' follows its own source"
            raise ValueError(message)
        if self.cron is not None and self.interval is not None:
            message = "only one of interval, cron can be the schedule"
            raise ValueError(message)
        if self.time_zone is not None and self.cron is None:
            message = "'time_zone' goes with 'cron'"
            raise ValueError(message)
        return self


class WrittenScripts(Written):
    """The bash scripts of a declared kind."""

    apply: str = Field(min_length=1)
    destroy: str | None = Field(default=None, min_length=1)
    outputs: str | None = Field(default=None, min_length=1)


class WrittenManifest(Written):
    """`type: manifest`: declares a kind."""

    type: Literal["manifest"]
    kind: DocumentName
    metadata: WrittenMetadata = WrittenMetadata()
    spec_schema: dict[str, Any] = Field(default_factory=dict, alias="schema")
    scripts: WrittenScripts
    timeout: Span | None = None


class WrittenProviderConfig(Written):
    """`type: providerconfig`: settings that targets of one kind share."""

    type: Literal["providerconfig"]
    kind: str
    name: DocumentName
    metadata: WrittenMetadata = WrittenMetadata()
    config: dict[str, Any] = Field(default_factory=dict)


class WrittenDefaults(Written):
    """What a scope gives to its resources that say nothing themselves."""

    interval: Interval | None = None
    provider_config: DocumentName | None = None
    labels: Labels = Field(default_factory=dict)


class WrittenScope(Written):
    """`gitops.yaml`: who owns the documents below a folder."""

    app: DocumentName
    prune: Switch = False
    ignore: list[Text] = Field(default_factory=list, max_length=100)
    defaults: WrittenDefaults = WrittenDefaults()


class WrittenEnvironment(Written):
    """The part of a providerconfig's `config` that every kind has."""

    env: Environment = Field(default_factory=dict)
