"""What a worker orders of the zygote, what comes back, and the two contracts that keep this package free of kinds."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gitops_reconciler.errors import SpecError
from gitops_reconciler.work.base import Renewal

RUN_MARK = "GITOPS_RUN"
"""Environment variable with the run's id, by which a leftover is recognised. Belongs into the environment of tools."""

RUN_ID_LENGTH = 32
_RUN_ID = re.compile(rf"[0-9a-f]{{{RUN_ID_LENGTH}}}")


class Interruption(StrEnum):
    """Why a run was told to end before it was done."""

    NONE = ""
    DEADLINE = "deadline"
    LEASE = "lease"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One claimed run. Seconds everywhere; `claimed_at` is CLOCK_BOOTTIME when the claim was *sent*."""

    run: str
    item: str
    kind: str
    token: int
    generation: int
    ttl_seconds: float
    renewal_seconds: float
    grace_seconds: float
    slack_seconds: float = 2.0
    """Left of the lease when the last process of an interrupted run is gone."""
    tidy_seconds: float = 1.0
    """What processes that outlive a good end have between SIGTERM and SIGKILL."""
    patience_seconds: float = 900.0
    """How long the end of the run is offered to a store that does not answer."""
    deadline_seconds: float
    claimed_at: float
    lock: str
    leftover: str
    log: str
    payload: dict[str, Any] = field(default_factory=dict)
    """For the body; JSON, never a secret."""

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.run):
            raise SpecError(f"run id '{self.run}' must be {RUN_ID_LENGTH} hexadecimal digits")
        if self.grace_seconds > self.ttl_seconds / 2:
            raise SpecError(
                f"the grace of {self.item} ({self.grace_seconds:g} s) may be at most half of the lease's "
                f"{self.ttl_seconds:g} s: an interrupted run must be over before its lease is"
            )
        if self.renewal_seconds >= self.window_seconds:
            raise SpecError(
                f"the renewals of {self.item} (every {self.renewal_seconds:g} s) must come sooner than "
                f"{self.window_seconds:g} s, the lease's {self.ttl_seconds:g} s less grace and slack"
            )

    @property
    def window_seconds(self) -> float:
        """How long after a confirmed renewal was sent the run may go on without another one."""
        return self.ttl_seconds - self.grace_seconds - self.slack_seconds

    @property
    def deadline_at(self) -> float:
        """When the run must end, on CLOCK_BOOTTIME; counted from the claim, waiting included."""
        return self.claimed_at + self.deadline_seconds

    def to_json(self) -> str:
        """Return the order as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Order:
        """Return the order that `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """What is known once nothing of a run lives any more."""

    result: dict[str, Any] | None
    """What the body returned; None when no valid line came (crashed, killed, too long, never started)."""
    exit: int
    """Exit code of the run process; negative: the signal that ended it."""
    interrupted: Interruption
    started_at: str
    """ISO 8601 in UTC, as `ended_at`."""
    ended_at: str
    failure: str = ""
    """In a few words what the run process died of, where it could still say so; the traceback is in the log."""


class Lease(Protocol):
    """The claim of one run, seen from its supervisor.

    Made there after the last fork but one, so it may keep a connection. Each call must return within 3 s (short socket
    timeouts, no retries inside): while it blocks the supervisor can't act, and one that is silent for long is taken
    for frozen.
    """

    def renew(self) -> Renewal:
        """Prolong the lease.

        Raises:
            StoreUnavailableError: no answer; counts as not confirmed, never as refused.

        """
        ...

    def complete(self, ended: RunEnd) -> bool:
        """Write the end of the run and release; False: the token is dead, at most the run's own record was filled in.

        Raises:
            StoreUnavailableError: no answer; the supervisor tries again. It raises nothing else: that is a bug, which
                is logged, and tried again a few times with ever less of an end.

        """
        ...


class Parts(Protocol):
    """What a fleet puts into the chain of processes; built once, in the zygote, before any fork."""

    def lease(self, order: Order) -> Lease:
        """Return the lease of the order; no connection is made before its first call."""
        ...

    def body(self, order: Order, lock_fd: int) -> dict[str, Any]:
        """Do the work, in the run process: stdout and stderr are the log, `lock_fd` goes to every tool.

        The one SIGINT of an interruption arrives as KeyboardInterrupt; what is returned must fit 1 MiB of JSON.
        """
        ...
