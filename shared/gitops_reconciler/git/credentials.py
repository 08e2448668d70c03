"""Logins for repositories: by reference, for exactly one place, lent to git for one command, never on a command line.

The file `GITOPS_GIT_CREDENTIALS_FILE` maps URL prefixes to logins; the longest prefix wins:

    https://github.com/acme: {username: x-access-token, token: "env:GITOPS_SECRET_GITHUB"}
    git@git.example.com: {ssh_key: "file:deploy-key", known_hosts: known_hosts}
    http://nas.lan:3000: {}        # accepts that this one is not encrypted
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gitops_reconciler.errors import RepositoryAuthError, SecretError, SpecError
from gitops_reconciler.git.command import Access
from gitops_reconciler.git.ssh_keys import repaired_key
from gitops_reconciler.git.urls import Remote, parse_remote, shown
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.secrets import Secrets, is_reference

_SETTING = "GITOPS_GIT_CREDENTIALS_FILE"
_SHIPPED_KNOWN_HOSTS = Path(__file__).with_name("known_hosts")
_ANSWER_SCRIPT = Path(__file__).with_name("answer_credential.sh")
_LARGEST_FILE_BYTES = 1 << 20
_SSH_OPTIONS = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no",
    "IdentitiesOnly=yes", "IdentityAgent=none", "PreferredAuthentications=publickey",
    "ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes", "ForwardAgent=no",
    "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogin:
    """A user name and a token or password, for https."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLogin:
    """A private key in ssh's own form, and the host keys that are trusted; None: those of the big forges."""

    private_key: str = field(repr=False)
    known_hosts: Path | None = None


Login = TokenLogin | KeyLogin


class Credentials(Protocol):
    """Who knows the logins of repositories."""

    def login_for(self, remote: Remote) -> Login | None:
        """Return the login of the longest prefix that fits, or None.

        Raises:
            SpecError: the file is wrong. SecretError: a reference in it can't be resolved.

        """
        ...

    def permits_http(self, remote: Remote) -> bool:
        """Whether an operator wrote this place down, and by that accepts plain http for it."""
        ...


class NoCredentials:
    """For public and local repositories only."""

    def login_for(self, remote: Remote) -> Login | None:
        return None

    def permits_http(self, remote: Remote) -> bool:
        return False


class _Entry(BaseModel):
    """One login of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    username: str = Field(default="git", min_length=1, pattern=r"^[^\x00-\x1f\x7f]*$")
    token: str | None = None
    ssh_key: str | None = None
    known_hosts: Path | None = None

    @model_validator(mode="after")
    def _is_one_login(self) -> _Entry:
        if self.token is not None and self.ssh_key is not None:
            message = "has both token and ssh_key: an address has one of them"
            raise ValueError(message)
        if self.known_hosts is not None and self.ssh_key is None:
            message = "has known_hosts without ssh_key"
            raise ValueError(message)
        for name, value in (("token", self.token), ("ssh_key", self.ssh_key)):
            if value is not None and not is_reference(value):
                # Never repeat it: it is most likely the secret itself.
                message = (
                    f"{name} must be a secret reference (file:NAME or env:GITOPS_SECRET_NAME), not the secret itself"
                )
                raise ValueError(message)
        return self


@dataclass(frozen=True, slots=True)
class _Prefix:
    remote: Remote
    path: str
    entry: _Entry

    def fits(self, remote: Remote) -> bool:
        if self.remote.place != remote.place or (self.remote.user and self.remote.user != remote.user):
            return False
        mine, theirs = self.path.removesuffix(".git"), remote.path.removesuffix(".git")
        return not mine or theirs == mine or theirs.startswith(f"{mine}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCredentials:
    """The credentials file; read at each use, so that a rotated secret needs no restart."""

    path: Path
    secrets: Secrets

    def login_for(self, remote: Remote) -> Login | None:
        entry = self._entry_for(remote)
        if entry is None:
            return None
        if entry.ssh_key is not None:
            key = repaired_key(self.secrets.resolve(entry.ssh_key), entry.ssh_key)
            known_hosts = None if entry.known_hosts is None else self.path.parent / entry.known_hosts
            return KeyLogin(private_key=key, known_hosts=known_hosts)
        if entry.token is None:
            return None
        password = self.secrets.resolve(entry.token)
        if not password.isprintable():
            raise SecretError(f"secret '{entry.token}' is more than one line: a token has no newline")
        return TokenLogin(username=entry.username, password=password)

    def permits_http(self, remote: Remote) -> bool:
        return self._entry_for(remote) is not None

    def _entry_for(self, remote: Remote) -> _Entry | None:
        fitting = [prefix for prefix in self._load() if prefix.fits(remote)]
        best = max(fitting, key=lambda prefix: (len(prefix.path), bool(prefix.remote.user)), default=None)
        return None if best is None else best.entry

    def _load(self) -> list[_Prefix]:
        content = self._read()
        if not isinstance(content, dict):
            raise SpecError(f"{_SETTING} '{self.path}' must map URL prefixes to logins")
        return [self._prefix(str(prefix), entry) for prefix, entry in content.items()]

    def _read(self) -> Any:
        try:
            with self.path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                raw = file.read(_LARGEST_FILE_BYTES)
        except OSError as error:
            raise SpecError(f"{_SETTING} '{self.path}': {error.strerror}") from error
        if mode & 0o077:
            raise SpecError(f"{_SETTING} '{self.path}' has mode {mode:04o}: only its owner may read it (chmod 600)")
        try:
            return yaml.safe_load(raw) or {}
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f":{mark.line + 1}" if mark is not None else ""
            raise SpecError(f"{_SETTING} '{self.path}{line}' is no valid YAML") from None

    def _prefix(self, text: str, entry: Any) -> _Prefix:
        remote, path = _parse_prefix(text)
        if remote.password:
            raise SpecError(f"{_SETTING} '{self.path}': prefix '{shown(text)}' must not contain a password")
        try:
            login = _Entry.model_validate(entry or {})
        except ValidationError as error:
            # `include_input=False`: a wrong value may be a secret.
            details = error.errors(include_input=False, include_url=False)
            why = "; ".join(
                f"{'.'.join(map(str, item['loc']))} {item['msg'].removeprefix('Value error, ')}".strip()
                for item in details
            )
            raise SpecError(f"{_SETTING} '{self.path}': prefix '{shown(text)}': {why}") from None
        return _Prefix(remote, path, login)


def load_credentials(path: Path | None, secrets: Secrets) -> Credentials:
    """Return the credentials of a file; without one there are none. The file is read when a login is needed."""
    return NoCredentials() if path is None else FileCredentials(path=path, secrets=secrets)


def _parse_prefix(text: str) -> tuple[Remote, str]:
    """Return a prefix with its path, which may be empty: then it stands for the whole host."""
    try:
        remote = parse_remote(text)
    except SpecError:
        # In YAML the colon of `git@host:` ends the key.
        separator = "/" if "://" in text or ":" in text else ":"
        return parse_remote(f"{text.rstrip('/')}{separator}_"), ""
    return remote, remote.path


@contextmanager
def lent_access(remote: Remote, login: Login | None, folder: Path, redactor: Redactor) -> Iterator[Access]:
    """Lend a login to git: its secret lies in a private file below `folder` while the block runs, and nowhere else.

    `folder` belongs to this use alone (it is emptied before and removed after).

    Raises:
        RepositoryAuthError: ssh without a key.

    """
    if login is None:
        if remote.scheme == "ssh":
            raise RepositoryAuthError(
                f"no ssh key for '{remote.address}': add an entry with ssh_key for it to {_SETTING}"
            )
        yield Access(protocol=remote.scheme)
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    try:
        if isinstance(login, KeyLogin):
            yield _key_access(remote, login, folder)
        else:
            yield _token_access(remote, login, folder, redactor)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _token_access(remote: Remote, login: TokenLogin, folder: Path, redactor: Redactor) -> Access:
    if remote.scheme == "ssh":
        raise RepositoryAuthError(f"'{remote.address}' needs an ssh_key, but its entry in {_SETTING} has a token")
    for secret in (login.password or login.username, f"{login.username}:{login.password}"):
        redactor.add(secret)
    scheme, host, _ = remote.place
    name = f"[{host}]" if ":" in host else host
    place = name if remote.port is None else f"{name}:{remote.port}"
    answer = folder / "answer"
    lines = (scheme, place, remote.path, login.username, login.password)
    _write_private(answer, "".join(f"{line}\n" for line in lines))
    helper = f"!/bin/sh {shlex.quote(str(_ANSWER_SCRIPT))} {shlex.quote(str(answer))}"
    return Access(protocol=scheme, config=(("credential.helper", helper),))


def _key_access(remote: Remote, login: KeyLogin, folder: Path) -> Access:
    if remote.scheme != "ssh":
        raise RepositoryAuthError(f"'{remote.address}' needs a token, but its entry in {_SETTING} has an ssh_key")
    key = folder / "key"
    _write_private(key, login.private_key)
    known_hosts = login.known_hosts or _SHIPPED_KNOWN_HOSTS
    if not known_hosts.is_file():
        raise SpecError(f"known_hosts file '{known_hosts}' for '{remote.address}' does not exist")
    options = (*_SSH_OPTIONS, f'UserKnownHostsFile="{_escaped(known_hosts)}"')
    command = ["ssh", "-F", "/dev/null", "-i", _escaped(key), *(part for option in options for part in ("-o", option))]
    return Access(protocol="ssh", env={"GIT_SSH_COMMAND": shlex.join(command)})


def _escaped(path: Path) -> str:
    """Return a path for an option of ssh, which expands `%` and ends a quoted word at a quote."""
    if '"' in str(path) or "\\" in str(path):
        raise SpecError(f"ssh can't use the path '{path}': it has a quote or a backslash")
    return str(path).replace("%", "%%")


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
