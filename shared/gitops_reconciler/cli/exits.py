"""The exit codes of `gitops`: few, and the same for every command."""

from __future__ import annotations

from enum import IntEnum

from gitops_reconciler.errors import GitopsError, SettingsError, SpecError, StoreUnavailableError, UnknownTargetError


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    """Done, or skipped because another run is busy with it."""
    FAILED = 1
    INVALID = 2
    """Wrong usage, something invalid, or an unknown name."""
    UNREACHABLE = 3
    """The server, or the store, does not answer."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """Who read our output went away; what the shell says of SIGPIPE."""


EXPLAINED = "0 ok, or skipped because busy; 1 failed; 2 usage, invalid or unknown name; 3 unreachable"
"""For the end of every help text."""


class ServerUnreachableError(GitopsError):
    """The API server does not answer, or there is none to ask."""


class RefusedError(GitopsError):
    """What was asked for is invalid or names something unknown; nothing was done."""


def exit_of_error(error: GitopsError) -> Exit:
    """Return how a command ends that was stopped by this error."""
    if isinstance(error, ServerUnreachableError | StoreUnavailableError):
        return Exit.UNREACHABLE
    if isinstance(error, RefusedError | UnknownTargetError | SpecError | SettingsError):
        return Exit.INVALID
    return Exit.FAILED
