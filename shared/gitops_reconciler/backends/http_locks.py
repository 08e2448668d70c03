"""The lock of Terraform's `http` backend, asked without Terraform.

Terraform 1.11 tells of a held lock only its id, with its own name and time beside it as if they were the holder's. And
`force-unlock`, also that of 1.15, sends no id at all: it frees whatever lock is there by then. The protocol has both:
who is refused a LOCK gets the holder's description, and an UNLOCK may say which lock it means.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from gitops_reconciler.backends.state_locks import Lock

_HELD = frozenset({HTTPStatus.LOCKED, HTTPStatus.CONFLICT})
_LARGEST_ANSWER = 64 << 10
_TIMEOUT_SECONDS = 10.0
_CERTIFICATES = ("client_certificate_pem", "client_private_key_pem")


@dataclass(frozen=True, slots=True)
class Held:
    """What was seen of a lock."""

    lock: Lock | None
    """None: it is free by now."""
    description: bytes = b""
    """As the server has it; empty when it does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLocks:
    """The lock of one state behind an http server."""

    settings: Mapping[str, str]
    """Of the backend; empty where one says nothing."""
    who: str

    @classmethod
    def of(cls, config: object, env: Mapping[str, str], who: str) -> HttpLocks | None:
        """Read the backend's settings; None where the server can't be asked with what is known here."""
        given = config if isinstance(config, Mapping) else {}
        names = ("lock_address", "lock_method", "unlock_address", "unlock_method", "username", "password")
        more = (*_CERTIFICATES, "client_ca_certificate_pem")
        values = {name: str(given.get(name) or env.get(f"TF_HTTP_{name.upper()}") or "") for name in (*names, *more)}
        if not (values["lock_address"] and values["unlock_address"]) or any(values[name] for name in _CERTIFICATES):
            return None
        skips = given.get("skip_cert_verification") or env.get("TF_HTTP_SKIP_CERT_VERIFICATION", "").lower() == "true"
        return cls(settings={**values, "skips_verification": "yes" if skips else ""}, who=who)

    def look(self, known: Lock, now: datetime) -> Held:
        """Return who holds the lock; what is `known` of it where the server does not tell.

        To learn that it is asked for. Should it be free by now, it is given back at once.
        """
        ours = _description(self.who, now)
        status, body = self._ask("lock", ours)
        if status == HTTPStatus.OK:
            self._ask("unlock", ours)
            return Held(None)
        try:
            fields: Any = json.loads(body) if status in _HELD else {}
            return Held(Lock.of({name: value for name, value in fields.items() if isinstance(value, str)}), body)
        except (ValueError, TypeError, AttributeError):
            return Held(known)

    def release(self, description: bytes) -> bool:
        """Free exactly the lock of this description; False where the server refuses, as it is another one by now."""
        return self._ask("unlock", description)[0] == HTTPStatus.OK

    def _ask(self, what: str, body: bytes) -> tuple[int, bytes]:
        url = urlsplit(self.settings[f"{what}_address"])
        headers = {
            "Content-Type": "application/json",
            "Content-MD5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode(),
        }
        if self.settings["username"]:
            words = f"{self.settings['username']}:{self.settings['password']}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(words).decode()}"
        target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
        try:
            with closing(self._connect(url.scheme, url.hostname or "", url.port)) as connection:
                method = self.settings[f"{what}_method"] or what.upper()
                connection.request(method, target, body=body, headers=headers)
                answer = connection.getresponse()
                return answer.status, answer.read(_LARGEST_ANSWER)
        except (OSError, HTTPException, ValueError):
            return 0, b""

    def _connect(self, scheme: str, host: str, port: int | None) -> HTTPConnection:
        if scheme != "https":
            return HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        context = ssl.create_default_context(cadata=self.settings["client_ca_certificate_pem"] or None)
        if self.settings["skips_verification"]:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=context)


def _description(who: str, now: datetime) -> bytes:
    fields = {
        "ID": str(uuid4()),
        "Operation": "look",
        "Info": "gitops asks who holds the lock, and gives it back at once",
        "Who": who,
        "Version": "",
        "Created": now.isoformat().replace("+00:00", "Z"),
        "Path": "",
    }
    return json.dumps(fields).encode()
