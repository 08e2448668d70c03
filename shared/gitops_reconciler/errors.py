"""The whole exception tree, by what follows from an error, not by where it came from.

`ReconcileError`: the next tick may mend it. `WaitingError`: no failure, ask again later. `StalledError`: nothing
changes until there is a new revision or a person acts. Every class carries a stable `reason` of the closed list
`Reason`, which records, alerts and the API show.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Reason(StrEnum):
    """Why a run, or an ask, ended as it did: a closed list, PascalCase, stable over releases."""

    APPLIED = "Applied"
    APPLY_FAILED = "ApplyFailed"
    AUTH_FAILED = "AuthFailed"
    BUSY = "Busy"
    CHECKOUT_BLOCKED = "CheckoutBlocked"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    DEPENDENCY_NOT_READY = "DependencyNotReady"
    DESTROYED = "Destroyed"
    DISK_FULL = "DiskFull"
    DRY_RUN = "DryRun"
    ENGINE_LOCKED = "EngineLocked"
    FLEET_PAUSED = "FleetPaused"
    INTERNAL_ERROR = "InternalError"
    INTERRUPTED = "Interrupted"
    INVALID_DOCUMENT = "InvalidDocument"
    INVALID_SPEC = "InvalidSpec"
    LEASE_LOST = "LeaseLost"
    LOST = "Lost"
    MAX_REMOVALS = "MaxRemovals"
    NOT_BUILT = "NotBuilt"
    NOT_SYNCED = "NotSynced"
    OWNED_ELSEWHERE = "OwnedElsewhere"
    POOL_DEAD = "PoolDead"
    REF_MISSING = "RefMissing"
    REPOSITORY_CORRUPT = "RepositoryCorrupt"
    REPOSITORY_NOT_FOUND = "RepositoryNotFound"
    RUN_CRASHED = "RunCrashed"
    SECRET_MISSING = "SecretMissing"  # noqa: S105  # the name of a reason, not a secret
    STALLED = "Stalled"
    SOURCE_EMPTY = "SourceEmpty"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    STATE_ELSEWHERE = "StateElsewhere"
    STORE_UNAVAILABLE = "StoreUnavailable"
    SUSPENDED = "Suspended"
    TOOL_MISSING = "ToolMissing"
    UNKNOWN_TARGET = "UnknownTarget"
    UNREACHABLE = "Unreachable"


class GitopsError(Exception):
    """Root of the tree; never raised itself."""

    reason: ClassVar[Reason] = Reason.INTERNAL_ERROR


class ReconcileError(GitopsError):
    """A failure that the next tick may mend by itself."""

    reason = Reason.APPLY_FAILED


class WaitingError(GitopsError):
    """Not a failure: something else must happen first; the target is asked again with backoff."""

    reason = Reason.BUSY


class StalledError(GitopsError):
    """Nothing changes until there is a new revision or a person acts."""

    reason = Reason.INVALID_SPEC


class UnreachableError(ReconcileError):
    """The host of a target did not answer: its own run state, retried soon."""

    reason = Reason.UNREACHABLE


class ToolMissingError(ReconcileError):
    """An executable is not on PATH; the message names it and how to get it."""

    reason = Reason.TOOL_MISSING


class DeadlineExceededError(ReconcileError):
    """A command or a run took longer than its deadline and was ended."""

    reason = Reason.DEADLINE_EXCEEDED


class InterruptedRunError(ReconcileError):
    """The run was told to end (lease lost, shutdown, unlock) before it was done."""

    reason = Reason.INTERRUPTED


class LeaseLostError(ReconcileError):
    """A write was refused because the lease that it depends on is another run's now."""

    reason = Reason.LEASE_LOST


class GitError(ReconcileError):
    """A git step failed; the subclasses say which class of failure it is (GIT.md section 0)."""

    reason = Reason.SOURCE_UNREACHABLE


class RepositoryUnreachableError(GitError):
    """Network trouble, a stalled server, or the forge is down."""


class RepositoryAuthError(GitError):
    """The forge refused our credentials, or asked for some that we do not have."""

    reason = Reason.AUTH_FAILED


class RepositoryNotFoundError(GitError):
    """The forge answered that there is no such repository (or none that we may see)."""

    reason = Reason.REPOSITORY_NOT_FOUND


class RefMissingError(GitError):
    """The branch, tag or commit is not there; never a reason to prune."""

    reason = Reason.REF_MISSING


class RepositoryCorruptError(GitError):
    """The local mirror or checkout is damaged and could not be mended by itself."""

    reason = Reason.REPOSITORY_CORRUPT


class DiskFullError(GitError):
    """No space for a fetch or a checkout."""

    reason = Reason.DISK_FULL


class CheckoutBlockedError(GitError):
    """Untracked paths lie where the revision has files: nothing was overwritten, the message lists them."""

    reason = Reason.CHECKOUT_BLOCKED


class EngineLockedError(WaitingError):
    """The engine's own lock (Terraform state, Pulumi stack) is held."""

    reason = Reason.ENGINE_LOCKED


class EngineLockLeftError(UnreachableError):
    """The engine's own lock has been held for long, by nobody that we know of; a person has to look."""

    reason = Reason.ENGINE_LOCKED


class NotSyncedError(WaitingError):
    """The documents changed at the fetched revision, and their source has not been synced to it yet."""

    reason = Reason.NOT_SYNCED


class StillStalledError(WaitingError):
    """The target stalled at this very revision and document: nothing is tried until one of them changes."""

    reason = Reason.STALLED


class SpecError(StalledError):
    """A document, a config or a setting is wrong; the message says file, line, value and what is allowed."""


class DocumentError(SpecError):
    """A document of the tree is invalid; the message begins with `file:line`."""

    reason = Reason.INVALID_DOCUMENT


class NotBuiltError(SpecError):
    """A field or kind that this version does not have yet: refused, never ignored."""

    reason = Reason.NOT_BUILT


class SourceEmptyError(ReconcileError):
    """The source's path is missing or holds no document: an outage or a mistake, never a reason to go stale."""

    reason = Reason.SOURCE_EMPTY


class SecretError(StalledError):
    """A secret reference could not be resolved; the message names the reference, never a value."""

    reason = Reason.SECRET_MISSING


class StateElsewhereError(StalledError):
    """The target's state lives on another host; the message says which, and the ways out."""

    reason = Reason.STATE_ELSEWHERE


class OwnedElsewhereError(StalledError):
    """What the target would change belongs to another target; the message names both."""

    reason = Reason.OWNED_ELSEWHERE


class OwnerLeavingError(WaitingError):
    """What the target would change belongs to one that is on its way out: as soon as it has gone it may be owned."""

    reason = Reason.OWNED_ELSEWHERE


class MaxRemovalsError(StalledError):
    """More would be destroyed or replaced than the target allows; nothing was changed."""

    reason = Reason.MAX_REMOVALS


class UnknownTargetError(GitopsError):
    """No target of that name; the message offers what there is."""

    reason = Reason.UNKNOWN_TARGET


class SettingsError(GitopsError):
    """A setting is wrong; the program does not start."""

    reason = Reason.INVALID_SPEC


class StateFolderBusyError(GitopsError):
    """Another `gitops up` owns the state folder; the message names its pid."""

    reason = Reason.BUSY


class DeliveryError(ReconcileError):
    """A channel did not take an alert; it is sent again with backoff."""


class AlertRefusedError(DeliveryError):
    """The other side answered that it won't take this very alert; more attempts are of little use."""


class StoreUnavailableError(ReconcileError):
    """Redis does not answer; nothing was lost, the caller may try again."""

    reason = Reason.STORE_UNAVAILABLE
