"""Who made a commit, and when: the lines of the object, read by GitPython's parser from bytes that our reader fetched.

GitPython never opens a repository here and starts nothing that touches one (docs/decisions/0002).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from gitops_reconciler.redaction import printable

_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorship:
    """The author of a commit as the commit itself says: a claim, as long as nobody verified a signature."""

    name: str
    at: datetime
    """When it was authored, in the author's own time zone."""


def warm_up() -> None:
    """Load the parser before processes are forked that will need it."""
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # it need not find git: it gets bytes
    import git.objects.util  # noqa: F401  # 90 ms that only readers of authors pay


def parse_authorship(commit: bytes) -> Authorship | None:
    """Return the author of a commit object; None where its header is not one that git would write."""
    warm_up()
    from git.objects.util import parse_actor_and_date  # see warm_up

    header = commit.partition(b"\n\n")[0].decode("utf-8", "replace")
    line = next((line for line in header.split("\n") if line.startswith("author ")), None)
    if line is None:
        return None
    try:
        actor, seconds, west_of_utc = parse_actor_and_date(line)
        zone = timezone(timedelta(seconds=-west_of_utc))
        at = datetime.fromtimestamp(seconds, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError, IndexError):
        return None
    return Authorship(name=printable(actor.name or "")[:_LONGEST_NAME], at=at)
