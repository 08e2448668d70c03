"""Documents as people write them: every field that this version has, and the names of those that it does not."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gitops_reconciler.manifests.fields import (
    Branch,
    Ceiling,
    Commit,
    Dependency,
    DocumentName,
    Environment,
    FilePattern,
    Input,
    Interval,
    Labels,
    RepositoryPath,
    RepositoryUrl,
    SecretReference,
    Span,
    Switch,
    Tag,
    Text,
    VariableName,
)

MAX_REFERENCES: Final = 100
"""Of one list or map of a document that names other things."""

TYPES: Final = ("manifest", "providerconfig", "reactorbinding", "resource")

TYPES_NOT_BUILT: Final = frozenset({"reactorbinding"})
NOT_BUILT: Final[dict[str, frozenset[str]]] = {
    "resource": frozenset({"depends_on", "inputs", "retry_interval", "watch"}),
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
    for_each: FilePattern | None = None
    """One target for every file of the repository that this pattern means; expanded before anything else is checked."""
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
    depends_on: list[Dependency] = Field(default_factory=list, max_length=MAX_REFERENCES)
    inputs: dict[VariableName, Input] = Field(default_factory=dict, max_length=MAX_REFERENCES)
    watch: list[RepositoryPath] | None = Field(default=None, max_length=MAX_REFERENCES)
    """Further paths whose change matters; declared, a push that touches none of them and not `path` starts nothing."""
    retry_interval: Span | None = None
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


class WrittenTick(Written):
    """Which targets a reaction asks for."""

    select: Labels = Field(min_length=1)


class WrittenCommitStatus(Written):
    """How a commit's status is set."""

    token: SecretReference | None = None
    context: Text | None = Field(default=None, max_length=128)


class WrittenReaction(Written):
    """One thing that follows."""

    notify: SecretReference | None = None
    tick: WrittenTick | None = None
    commit_status: WrittenCommitStatus | None = None

    @model_validator(mode="after")
    def _does_one_thing(self) -> Self:
        names = [name for name in ("notify", "tick", "commit_status") if getattr(self, name) is not None]
        if len(names) != 1:
            message = "each entry does one thing: notify, tick or commit_status"
            raise ValueError(message if not names else f"{message}, not {' and '.join(names)}")
        return self


ReactorEvent = Literal["failed", "recovered", "changed", "drifted", "stale", "stalled", "unreachable"]


class WrittenReactorBinding(Written):
    """`type: reactorbinding`: what follows an event."""

    type: Literal["reactorbinding"]
    name: DocumentName
    metadata: WrittenMetadata = WrittenMetadata()
    on: list[ReactorEvent] = Field(min_length=1)
    select: Labels = Field(default_factory=dict)
    do: list[WrittenReaction] = Field(min_length=1, max_length=MAX_REFERENCES)


class WrittenDefaults(Written):
    """What a scope gives to its resources that say nothing themselves."""

    interval: Interval | None = None
    provider_config: DocumentName | None = None
    labels: Labels = Field(default_factory=dict)


class WrittenScope(Written):
    """`gitops.yaml`: who owns the documents below a folder."""

    app: DocumentName
    prune: Switch = False
    max_prune: Ceiling | None = None
    ignore: list[Text] = Field(default_factory=list, max_length=100)
    defaults: WrittenDefaults = WrittenDefaults()


class WrittenEnvironment(Written):
    """The part of a providerconfig's `config` that every kind has."""

    env: Environment = Field(default_factory=dict)
