"""Secret references: `file:NAME` below the secrets folder, `env:GITOPS_SECRET_NAME`; resolved only in the run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from tempfile import NamedTemporaryFile
from typing import Protocol

from gitops_reconciler.errors import SecretError
from gitops_reconciler.redaction import Redactor

ENV_PREFIX = "GITOPS_SECRET_"
_REFERENCE = re.compile(r"^(file|env):(?P<name>[^\s\x00-\x1f]+)$")
_LARGEST_SECRET_BYTES = 1 << 20


def is_reference(text: object) -> bool:
    """Whether a config value asks for a secret."""
    return isinstance(text, str) and _REFERENCE.match(text) is not None


class Secrets(Protocol):
    """Turns a reference into its value, and makes sure that the value is masked wherever this run writes."""

    def resolve(self, reference: str) -> str:
        """Return the secret.

        Raises:
            SecretError: unknown form, outside the folder, unreadable or empty; names the reference, never a value.

        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedSecrets:
    """The real thing: files of one folder and variables of one prefix."""

    folder: Path | None
    environ: Mapping[str, str]
    redactor: Redactor = field(default_factory=Redactor)

    def resolve(self, reference: str) -> str:
        """Return the secret without its final newline, and have it masked from now on."""
        match = _REFERENCE.match(reference)
        if match is None:
            message = f"'{reference}' is no secret reference (allowed: file:NAME, env:{ENV_PREFIX}NAME)"
            raise SecretError(message)
        value = self._file(match["name"]) if match[1] == "file" else self._variable(match["name"])
        if not value:
            message = f"secret '{reference}' is empty"
            raise SecretError(message)
        self.redactor.add(value)
        return value

    def _variable(self, name: str) -> str:
        if not name.startswith(ENV_PREFIX):
            message = f"secret 'env:{name}': only variables that begin with {ENV_PREFIX} may be referenced"
            raise SecretError(message)
        if name not in self.environ:
            message = f"secret 'env:{name}': the variable is not set on this worker"
            raise SecretError(message)
        return self.environ[name]

    def _file(self, name: str) -> str:
        if self.folder is None:
            message = f"secret 'file:{name}': set GITOPS_SECRETS_DIR to the folder that holds it"
            raise SecretError(message)
        root = self.folder.resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            message = f"secret 'file:{name}': the file must lie below GITOPS_SECRETS_DIR"
            raise SecretError(message)
        try:
            with path.open("rb") as file:
                raw = file.read(_LARGEST_SECRET_BYTES + 1)
        except OSError as error:
            message = f"secret 'file:{name}': {os.strerror(error.errno or 0)}"
            raise SecretError(message) from error
        if len(raw) > _LARGEST_SECRET_BYTES:
            message = f"secret 'file:{name}': larger than {_LARGEST_SECRET_BYTES} bytes"
            raise SecretError(message)
        return raw.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")


def made_secret(path: Path) -> str:
    """Return a secret that the program makes for itself: 256 random bits, made by the first who asks, mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError), NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-") as file:
        file.write(token_urlsafe(32) + "\n")  # the file is 0600 from its beginning
        file.flush()
        os.link(file.name, path)  # whole, or not there
    return path.read_text(encoding="utf-8").strip()
