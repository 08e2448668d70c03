"""What Redis answers when it can't, in words that say what to do about it; never a password."""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

_LONGEST = 300
_BY_KIND: tuple[tuple[type[Exception], str], ...] = (
    (OutOfMemoryError, "redis is full (maxmemory) and takes no writes: give it more memory, or keep fewer runs"),
    (ReadOnlyError, "redis is a read-only replica: another server is, or soon will be, the master"),
    (BusyLoadingError, "redis is still loading its data"),
    (NoPermissionError, "redis does not let this user do what the fleet needs (docs/redis.md has the ACL)"),
    (AuthenticationError, "redis refuses the login: check user and password of GITOPS_REDIS_URL"),
    (InvalidResponse, "what answers there is no redis"),
    (RedisTimeoutError, "redis does not answer in time"),
)
_BY_TEXT = (
    ("command not allowed when used memory", OutOfMemoryError),
    ("-OOM ", OutOfMemoryError),
    ("READONLY", ReadOnlyError),
    ("NOPERM", NoPermissionError),
    ("NOAUTH", AuthenticationError),
    ("WRONGPASS", AuthenticationError),
)
_WORDS = {
    "MISCONF": "redis can't write to its disk and takes no writes",
    "NOREPLICAS": "redis has too few replicas (min-replicas-to-write) and takes no writes",
    "CERTIFICATE_VERIFY_FAILED": "the certificate of redis is not signed by a CA that is trusted here "
    "(rediss://…?ssl_ca_certs=/path/ca.pem), or names another host",
    "WRONG_VERSION_NUMBER": "what answers there speaks no TLS (redis:// instead of rediss://?)",
    "Name or service not known": "the host of redis is not known here",
    "Temporary failure in name resolution": "the host of redis is not known here, or the name server is away",
    "No address associated with hostname": "the host of redis is not known here",
}


def trouble(error: Exception) -> str:
    """Return in one line what is wrong, with the client's own words where they add to it."""
    text = " ".join(str(error).split())[:_LONGEST]
    for words, meant in _WORDS.items():
        if words in str(error):
            return f"{meant} ({text})"
    kind = next((kind for words, kind in _BY_TEXT if words in text), type(error))
    for known, meant in _BY_KIND:
        if issubclass(kind, known):
            return meant if known is OutOfMemoryError else f"{meant} ({text or type(error).__name__})"
    return text or type(error).__name__


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, says that memory is full."""
    while error is not None:
        if isinstance(error, OutOfMemoryError) or "command not allowed when used memory" in str(error):
            return True
        error = error.__cause__
    return False


def is_final(error: Exception) -> bool:
    """Whether waiting won't help: a wrong login, a certificate that is not trusted, something that is no redis."""
    words = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "NOAUTH", "WRONGPASS")
    return isinstance(error, AuthenticationError | InvalidResponse) or any(word in str(error) for word in words)
