"""What git's words mean: which class of failure, and what to do. The boundary where git's stderr ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gitops_reconciler.errors import (
    DiskFullError,
    GitError,
    RefMissingError,
    RepositoryAuthError,
    RepositoryCorruptError,
    RepositoryNotFoundError,
    RepositoryUnreachableError,
    SpecError,
)
from gitops_reconciler.processes import Finished
from gitops_reconciler.redaction import Redactor, printable

_CREDENTIALS = "GITOPS_GIT_CREDENTIALS_FILE"
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])?")
_NOISE = re.compile(r"^(hint:|remote:\s*$|warning: templates not found|Please make sure|and the repository exists)")
_LONGEST_TEXT = 400


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    error: type[GitError | SpecError]
    words: str
    advice: str
    is_local: bool
    """Whether only our own git can say so: what the server relays (`remote: …`) does not count."""

    def fits(self, stderr: str, own: str) -> bool:
        return self.pattern.search(own if self.is_local else stderr) is not None


def _rule(error: type[GitError | SpecError], words: str, advice: str, *patterns: str, is_local: bool = False) -> _Rule:
    return _Rule(re.compile("|".join(patterns), re.IGNORECASE), error, words, advice, is_local)


# The first match counts: the surest and most special ones come first. git is run with LC_ALL=C.UTF-8, so the texts are
# stable; where a probe or an exit code can tell, the caller does not get here.
_RULES = (
    _rule(
        DiskFullError, "no space left", "free some space",
        r"No space left on device", r"Disk quota exceeded", r"File size limit exceeded",
        r"unpack-objects died of signal 25", is_local=True,
    ),
    _rule(
        RepositoryAuthError, "the host key is unknown or has changed",
        f"compare it with what the forge publishes, then correct the known_hosts file of its entry in {_CREDENTIALS}",
        r"Host key verification failed", r"REMOTE HOST IDENTIFICATION HAS CHANGED",
    ),
    _rule(
        RepositoryNotFoundError, "the repository has moved: the server redirects, which is not followed",
        "write its new address",
        r"returned error: 30[1278]", r"unable to update url base from redirection",
    ),
    _rule(
        RepositoryAuthError, "the login was refused",
        f"check the entry for it in {_CREDENTIALS}: right prefix, token not expired, read access",
        r"Authentication failed", r"could not read (Username|Password)", r"returned error: 40[13]",
        r"Permission denied \(", r"Permission denied, please try again", r"Too many authentication failures",
        r"HTTP Basic: Access denied", r"Load key .*: ", r"unable to read askpass", r"Bad credentials", r"access denied",
    ),
    _rule(
        RepositoryNotFoundError, "there is no such repository, or the login may not see it",
        f"check the address, and its entry in {_CREDENTIALS}",
        r"Repository not found", r"repository '.*' (not found|does not exist)", r"returned error: 4(04|10)",
        r"does not appear to be a git repository", r"did you run git update-server-info", r"could not be found",
    ),
    _rule(
        RefMissingError, "the ref is gone", "check the branch or tag; nothing is pruned because of this",
        r"couldn't find remote ref", r"not our ref", r"no such (remote )?ref",
    ),
    _rule(
        RepositoryUnreachableError, "the server's certificate is not trusted",
        "install the certificate authority, or set SSL_CERT_FILE",
        r"SSL certificate problem", r"server certificate verification failed", r"self.signed certificate",
    ),
    _rule(
        RepositoryUnreachableError, "the server can't be reached", "it is tried again",
        r"Could not resolve", r"Failed to connect", r"Couldn't connect", r"Connection (refused|reset|closed|timed out)",
        r"timed out", r"Operation too slow", r"returned error: (429|5\d\d)", r"No route to host",
        r"Network is unreachable", r"Empty reply from server", r"RPC failed", r"kex_exchange_identification",
        r"Temporary failure in name resolution", r"Name or service not known", r"gnutls_handshake",
        r"SSL_(connect|read|ERROR)", r"Proxy CONNECT", r"TLS connection", r"Timeout, server",
        r"the remote end hung up", r"unexpected disconnect", r"early EOF",
    ),
    _rule(
        SpecError, "git refuses the repository's content (fsck)", "repair or remove those objects",
        r"fsck error", is_local=True,
    ),
    _rule(
        GitError, "a folder belongs to another user", "give it to the user that runs this, or run as its owner",
        r"dubious ownership",
    ),
    _rule(
        GitError, "a file can't be written or replaced", "correct its owner or permissions",
        r"unable to (unlink|create file|create symlink|write file|create directory)", r"cannot (create|stat|unlink)",
        r"Permission denied", r"Read-only file system", r"Operation not permitted", is_local=True,
    ),
    _rule(
        RepositoryCorruptError, "the local copy is damaged", "it is made anew",
        r"is corrupt", r"object file .* is empty", r"bad (object|tree object|index file|signature|ref for|config)",
        r"inflate:", r"unable to (read|find|unpack|parse) ", r"not a git repository", r"bad revision",
        r"did not send all necessary objects", r"packfile .* (cannot|is|does)", r"index-pack",
        r"(index|pack|idx).* (corrupt|truncated|too small)", r"invalid (object|sha1)", r"hash mismatch",
        r"missing (blob|tree|commit|object)", r"reference (broken|is not a tree)", r"unable to resolve reference",
        r"badly formed", r"mismatched algorithms", r"non-monotonic index", r"premature end", r"garbage at end",
        r"revision walk setup failed", r"does not point to a valid object", r"index file", r"name field in the index",
        r"bad index version", is_local=True,
    ),
)  # fmt: skip


def said_by(finished: Finished, redactor: Redactor) -> str:
    """Return the last words of a command as they may be stored: no secret, no control characters, bounded."""
    text = printable(_ESCAPES.sub("", redactor.text(finished.stderr).replace("\r", "\n")))
    lines = [line.strip() for line in text.splitlines()]
    kept = "; ".join(line for line in lines if line and not _NOISE.match(line))
    return kept[-_LONGEST_TEXT:] or f"git ended with {finished.returncode}"


def failure(finished: Finished, *, doing: str, redactor: Redactor) -> GitError | SpecError:
    """Return the error that a failed command means.

    `doing` says what was tried on what, as in `fetch of 'https://forge/repo'`; its URL must carry no credentials.
    """
    said = said_by(finished, redactor)
    own = "\n".join(line for line in finished.stderr.splitlines() if not line.startswith("remote:"))
    for rule in _RULES:
        if rule.fits(finished.stderr, own):
            return rule.error(f"{doing}: {rule.words} ({said}); {rule.advice}")
    return GitError(f"{doing} failed ({said}); it is tried again")
