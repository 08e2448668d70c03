"""Repository URLs: one parser for fetching, for matching pushes and for showing, which refuses what is odd.

The rules are those of the hazards G03 and G05 to G10: an address that could become an option, a command, another host
or a leak is refused before git sees it.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never
from urllib.parse import SplitResult, quote, unquote, urlsplit

from gitops_reconciler.errors import SpecError
from gitops_reconciler.redaction import redact_url

_SCHEMES = {
    "https": "https",
    "http": "http",
    "ssh": "ssh",
    "git+ssh": "ssh",
    "ssh+git": "ssh",
    "git": "git",
    "file": "file",
}
_DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}
_ALLOWED = "https://host/path, ssh://user@host/path, user@host:path"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HELPER = re.compile(r"^[A-Za-z0-9][A-Za-z0-9+.-]*::")
_SCP = re.compile(r"^(?:(?P<user>[^@/:]*)@)?(?P<host>\[[^\]/]*\]|[^:/@\[\]]+):(?P<path>.*)$")
_HOST = re.compile(r"^[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?$")
_LONGEST_URL = 2048
_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A parsed repository address. `path` is decoded; `address` is what git gets and people see: no password in it."""

    scheme: str
    host: str
    port: int | None
    path: str
    address: str
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def place(self) -> tuple[str, str, int]:
        """Scheme, host and port: what a credential belongs to."""
        return self.scheme, self.host, self.port or _DEFAULT_PORTS.get(self.scheme, 0)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return self.scheme == "file"

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine, so that nobody can listen on the way."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def shown(url: str) -> str:
    """Return a URL as it may stand in a message: no user-info, no query, no control characters, bounded."""
    text = re.split(r"[?#]", redact_url(url.strip()), maxsplit=1)[0]
    return _CONTROL.sub("?", text)[:_SHOWN]


def parse_remote(url: str) -> Remote:
    """Return the parts of a repository address.

    Raises:
        SpecError: it is none, or one that git, ssh or a credential helper could take for something else.

    """
    text = url.strip()
    if not text:
        raise SpecError("the repository URL is empty")
    if len(text) > _LONGEST_URL:
        raise SpecError(f"repository URL '{shown(text)}…' is longer than {_LONGEST_URL} characters")
    if _CONTROL.search(text) or "\\" in text:
        _refuse(text, "has a control character or a backslash")
    if text.startswith("-"):
        _refuse(text, "begins with '-', which git would take for an option")
    if _HELPER.match(text):
        _refuse(text, f"names a transport helper, which could run commands (allowed: {_ALLOWED})")
    if "://" in text:
        return _parse_url(text)
    if text.startswith("/"):
        return _local(text)
    return _parse_scp(text)


def _refuse(url: str, why: str) -> Never:
    raise SpecError(f"repository URL '{shown(url)}' {why}")


def _parse_url(text: str) -> Remote:
    scheme = _SCHEMES.get(text.partition("://")[0].lower())
    if scheme is None:
        _refuse(text, f"has an unknown scheme (allowed: {_ALLOWED})")
    if scheme == "file":
        return _parse_file(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        _refuse(text, "has no valid host and port")
    if parts.netloc.count("@") > 1:
        _refuse(text, "has more than one '@' before its path")
    user, password = _user_info(text, parts)
    host = _host(text, parts.hostname or "")
    path = _path(text, parts.path)
    return Remote(
        scheme=scheme,
        host=host,
        port=port,
        path=path,
        address=_address(scheme, user=user, host=host, port=port, raw_path=parts.path),
        user=user,
        password=password,
    )


def _user_info(text: str, parts: SplitResult) -> tuple[str, str]:
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if _CONTROL.search(user + password):
        _refuse(text, "has a control character in its user-info")
    if user.startswith("-") or (user and any(character in " '\"`$;|&<>" for character in user)):
        _refuse(text, "has a user name that ssh or a shell could take for something else")
    return user, password


def _address(scheme: str, *, user: str, host: str, port: int | None, raw_path: str) -> str:
    name = f"[{host}]" if ":" in host else host
    login = f"{quote(user)}@" if user and scheme == "ssh" else ""
    where = "" if port is None else f":{port}"
    return f"{scheme}://{login}{name}{where}{raw_path.replace(' ', '%20')}"


def _host(text: str, raw: str) -> str:
    host = raw.strip("[]")
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            _refuse(text, "has no valid IPv6 address")
    try:
        name = host.encode("idna").decode("ascii").lower() if not host.isascii() else host.lower()
    except UnicodeError:
        _refuse(text, "has no valid host name")
    name = name.removesuffix(".")
    if not _HOST.match(name) or ".." in name:
        _refuse(text, "has no valid host name")
    return name


def _path(text: str, raw: str) -> str:
    path = unquote(raw, errors="surrogateescape").strip("/")
    if not path:
        _refuse(text, "has no path")
    if _CONTROL.search(path) or "\\" in path:
        _refuse(text, "has a control character or a backslash in its path")
    if {".", ".."} & set(path.split("/")):
        _refuse(text, "has '.' or '..' as a part of its path")
    return path


def _parse_scp(text: str) -> Remote:
    match = _SCP.match(text)
    if match is None:
        _refuse(text, f"is no absolute address (allowed: {_ALLOWED})")
    user, raw_host = match["user"] or "", match["host"]
    if len(raw_host) == 1 and not user:
        _refuse(text, "looks like a path of a Windows drive")
    if user.startswith("-") or match["path"].startswith("-"):
        _refuse(text, "has a part that begins with '-', which ssh would take for an option")
    if not re.fullmatch(r"[A-Za-z0-9._+~-]*", user):
        _refuse(text, "has a user name that ssh or a shell could take for something else")
    host = _host(text, raw_host)
    name = f"[{host}]" if ":" in host else host
    return Remote(
        scheme="ssh",
        host=host,
        port=None,
        path=_path(text, match["path"]),
        # Kept in this form: `host:path` begins in the home folder, `ssh://host/path` at the root.
        address=f"{user}@{name}:{match['path']}" if user else f"{name}:{match['path']}",
        user=user,
    )


def _parse_file(text: str) -> Remote:
    rest = text.partition("://")[2].removeprefix("localhost")
    path = unquote(rest, errors="surrogateescape")
    if not path.startswith("/"):
        _refuse(text, "must name an absolute path of this machine")
    if _CONTROL.search(path):
        _refuse(text, "has a control character in its path")
    return _local(path)


def _local(path: str) -> Remote:
    real = os.path.realpath(path)
    return Remote(scheme="file", host="", port=None, path=real, address=real)


def check_url(url: str, allow_local: Path | None, *, allow_http: bool = False) -> Remote:
    """Return a repository address that may be fetched from.

    `allow_local` is the folder below which local repositories are permitted. Plain http is for loopback addresses, and
    where an operator has written it down (`allow_http`).

    Raises:
        SpecError: it may not be used; the message says why, what to write instead, and no secret.

    """
    remote = parse_remote(url)
    if remote.is_local:
        return _check_local(remote, allow_local)
    if remote.scheme == "git":
        _refuse(url, f"uses git://, which proves neither host nor content (allowed: {_ALLOWED})")
    if remote.scheme == "http" and not (allow_http or remote.is_loopback):
        _refuse(
            url,
            "uses http, which anybody on the way can read and change: use https, "
            "or list its prefix in GITOPS_GIT_CREDENTIALS_FILE to accept that",
        )
    if remote.password or (remote.user and remote.scheme != "ssh"):
        _refuse(url, f"carries credentials: write {remote.address} and put them into GITOPS_GIT_CREDENTIALS_FILE")
    if re.search(r"[?#]", url):
        _refuse(url, f"carries a query or fragment: write {remote.address}")
    return remote


def _check_local(remote: Remote, allow_local: Path | None) -> Remote:
    if allow_local is None:
        raise SpecError(
            f"repository '{remote.path}' is a folder of this machine: set GITOPS_GIT_ALLOW_LOCAL to the folder "
            "below which local repositories are permitted"
        )
    if not Path(remote.path).is_relative_to(Path(os.path.realpath(allow_local))):
        raise SpecError(f"repository '{remote.path}' does not lie below GITOPS_GIT_ALLOW_LOCAL ('{allow_local}')")
    return remote


def without_credentials(url: str) -> str:
    """Return the address that may be stored and shown; a URL that can't be parsed is only redacted."""
    try:
        return parse_remote(url).address
    except SpecError:
        return shown(url)


def repository_key(url: str) -> str:
    """Return one stable key of a repository, by which its asks are counted: the least of its keys.

    Raises:
        SpecError: the URL is none.

    """
    return min(_keys(parse_remote(url)))


def repository_keys(url: str) -> frozenset[str]:
    """Return all keys under which a repository may be known: two URLs mean the same one when they share a key.

    Ports and schemes do not count: a false match costs one fetch, a missed one a lost deploy. A URL that can't be
    parsed has no key and so matches nothing.
    """
    try:
        return frozenset(_keys(parse_remote(url)))
    except SpecError:
        return frozenset()


def _keys(remote: Remote) -> set[str]:
    if remote.is_local:
        return {remote.path}
    host, path = _forge_host(remote.host), remote.path.lower().removesuffix(".git").strip("/")
    if host == "dev.azure.com" or host.endswith(".visualstudio.com"):
        return {f"dev.azure.com/{_azure_path(host, path)}"}
    keys = {f"{host}/{path}"}
    parts = path.split("/")
    # Bitbucket Data Center: http has `scm/`, maybe below a context path, where ssh has nothing.
    if len(parts) in {3, 4} and parts[-3] == "scm" and remote.scheme != "ssh":
        keys.add(f"{host}/{'/'.join(parts[-2:])}")
    return keys


def _forge_host(host: str) -> str:
    """Return the host of the web pages: forges that offer ssh on port 443 do it under another name (argo-cd#19314)."""
    for prefix in ("ssh.", "altssh."):
        if host.startswith(prefix) and "." in host.removeprefix(prefix):
            return host.removeprefix(prefix)
    return host


def _azure_path(host: str, path: str) -> str:
    """Return organisation/project/repository of any of Azure DevOps' address forms (argo-cd#20125)."""
    parts = [part for part in path.split("/") if part not in {"defaultcollection", "_full", "_optimized"}]
    organisation = host.partition(".")[0]
    if parts[:1] == ["v3"]:
        return "/".join(parts[1:])
    if host not in {"dev.azure.com", "vs-ssh.visualstudio.com"}:
        parts.insert(0, organisation)
    parts = [part for part in parts if part not in {"_git", "_ssh"}]
    # A repository that bears its project's name: the project is left out.
    return "/".join([*parts, parts[-1]] if len(parts) == 2 else parts)  # noqa: PLR2004  # organisation and repository
