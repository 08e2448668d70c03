"""Documents as the rest of the program knows them: checked, defaults filled in, frozen, and storable as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gitops_reconciler.errors import SpecError
from gitops_reconciler.git.base import Repository
from gitops_reconciler.manifests.fields import OFF
from gitops_reconciler.manifests.problems import on_one_line
from gitops_reconciler.models import Scripts

APP_LABEL: Final = "gitops-reconciler/app"
PRUNE_LABEL: Final = "gitops-reconciler/prune"
CUSTOM_POOL: Final = "custom"
RECORD_VERSION: Final = 1
REACTOR_EVENTS: Final = ("failed", "recovered", "changed", "drifted", "stale", "stalled", "unreachable")
"""What a reactorbinding can wait for."""

_SLOW_KINDS: Final = frozenset({"terraform", "opentofu", "pulumi", "cloudformation"})
_SLOW_INTERVAL: Final = timedelta(hours=1)
DEFAULT_SCRIPT_TIMEOUT: Final = timedelta(seconds=60)


class _Document(BaseModel):
    """Frozen; durations are stored as seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_timedelta="float")


class Origin(_Document):
    """Where a document came from, and what identifies it."""

    source: str
    path: str
    """From the repository's root, as the source has it."""
    line: int = 1
    id: str
    """`metadata.id`, else UUID v5 of the path (T20): provenance, not identity; that is the name."""
    content_hash: str
    """SHA-256 of the canonical JSON of the file's content; defaults of the scope are not in it."""
    scope: str = ""
    """Folder of the nearest scope file, `.` for the top; empty: there is none."""

    def __str__(self) -> str:
        """Return `path:line`, the beginning of messages."""
        return f"{on_one_line(self.path)}:{self.line}"


class InputReference(_Document):
    """An output of another target, as `inputs` names it."""

    item: str
    """Fleet-wide name, `source/name`."""
    output: str


class ResourceDocument(_Document):
    """One target, as declared."""

    type: Literal["resource"] = "resource"
    origin: Origin
    kind: str
    name: str
    is_declared: bool = False
    """Whether a manifest of the tree declares the kind; else it is built in."""
    app: str = ""
    """Who owns it: the app of its scope. Empty: nobody, so it is never pruned."""
    path: str = "."
    repo: str | None = None
    """None: the repository and revision of its own source."""
    ref: str = ""
    """`refs/heads/…`, `refs/tags/…` or a full SHA; empty without `repo`."""
    interval: timedelta | None = None
    cron: str | None = None
    time_zone: str = "UTC"
    timeout: timedelta | None = None
    """None: the fleet's deadline."""
    pool: str
    labels: Mapping[str, str] = Field(default_factory=dict)
    provider_config: str | None = None
    suspend: bool | None = None
    """None: not declared, so an operator's word stands."""
    depends_on: tuple[str, ...] = ()
    """Fleet-wide names of the targets that it waits for, sorted; those of its `inputs` are among them."""
    inputs: Mapping[str, InputReference] = Field(default_factory=dict)
    """By the name of the variable that the output arrives in."""
    watch: tuple[str, ...] | None = None
    """Paths of its repository whose change matters beside `path`, sorted; None: not declared, every tip is tried."""
    retry_interval: timedelta | None = None
    """Pause before a failed apply is tried again; None: the next interval."""
    spec: Mapping[str, Any] = Field(default_factory=dict)

    @property
    def target(self) -> str:
        """The fleet-wide name, `source/name`."""
        return f"{self.origin.source}/{self.name}"

    @property
    def is_prunable(self) -> bool:
        """Whether a prune may ever tear it down: it has an owner and no label that exempts it."""
        return bool(self.app) and self.labels.get(PRUNE_LABEL, "").lower() != "false"

    def repository(self, own: Repository) -> Repository:
        """Return where the declaration lies; `own` is the repository of the document's source."""
        return own if self.repo is None else Repository(url=self.repo, ref=self.ref)

    def schedule(self, default_interval: timedelta) -> dict[str, Any]:
        """Return `{"interval": seconds}`, `{"cron": …, "time_zone": …}`, or `{}`: pushes and people alone tick it."""
        if self.cron is not None:
            return {"cron": self.cron, "time_zone": self.time_zone}
        if self.interval == OFF:
            return {}
        default = _SLOW_INTERVAL if self.kind in _SLOW_KINDS and not self.is_declared else default_interval
        return {"interval": (self.interval or default).total_seconds()}


class ManifestDocument(_Document):
    """A declared kind: what its spec may be, and the scripts that work on it."""

    type: Literal["manifest"] = "manifest"
    origin: Origin
    kind: str
    spec_schema: Mapping[str, Any] = Field(default_factory=dict)
    scripts: Scripts
    timeout: timedelta = DEFAULT_SCRIPT_TIMEOUT
    """Of one script."""


class ProviderConfigDocument(_Document):
    """Settings that targets of one kind share; a target's own spec overrides them."""

    type: Literal["providerconfig"] = "providerconfig"
    origin: Origin
    kind: str
    name: str
    config: Mapping[str, Any] = Field(default_factory=dict)
    """Fields of the kind's spec, and `env`: variables that the tool starts with."""


class TickReaction(_Document):
    """Ask for ticks of the targets of the same source that have all these labels."""

    select: Mapping[str, str]


class CommitStatusReaction(_Document):
    """Set a status on the commit that was applied."""

    token: str | None = None
    """Secret reference; None: the credentials that the repository is fetched with."""
    context: str | None = None
    """Under which name the forge shows it; None: that of the target."""


class Reaction(_Document):
    """One thing that follows an event; exactly one of the fields is set."""

    notify: str | None = None
    """Secret reference to the address of a channel."""
    tick: TickReaction | None = None
    commit_status: CommitStatusReaction | None = None


class ReactorBindingDocument(_Document):
    """What follows which events of which targets."""

    type: Literal["reactorbinding"] = "reactorbinding"
    origin: Origin
    name: str
    on: tuple[str, ...]
    """Of `REACTOR_EVENTS`, in their order."""
    select: Mapping[str, str] = Field(default_factory=dict)
    """Labels that a target of the same source must have, all of them; empty: every target."""
    do: tuple[Reaction, ...]


Document = ResourceDocument | ManifestDocument | ProviderConfigDocument | ReactorBindingDocument

_DOCUMENT: TypeAdapter[Document] = TypeAdapter(Annotated[Document, Field(discriminator="type")])


def to_record(document: Document) -> dict[str, Any]:
    """Return the document as JSON, all defaults written out; equal documents make equal records."""
    return {"version": RECORD_VERSION, **document.model_dump(mode="json")}


def from_record(record: Mapping[str, Any]) -> Document:
    """Return the document that `to_record` made the record of.

    Raises:
        SpecError: the record is of another version of this program, or none at all.

    """
    fields = dict(record)
    version = fields.pop("version", None)
    if version != RECORD_VERSION:
        message = (
            f"a stored document has version {version!r}, this program reads {RECORD_VERSION}: sync its source again"
        )
        raise SpecError(message)
    try:
        return _DOCUMENT.validate_python(fields)
    except ValidationError as error:
        places = ", ".join(".".join(str(part) for part in item["loc"]) for item in error.errors()[:3])
        message = f"a stored document cannot be read ({places}): sync its source again"
        raise SpecError(message) from error
