"""Private keys as people store them, made into files as ssh wants them (G96)."""

from __future__ import annotations

import base64
import binascii
import re
import textwrap

from gitops_reconciler.errors import SecretError

_PEM = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]*PRIVATE KEY)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL)
_OPENSSH_MAGIC = b"openssh-key-v1\0"
_LINE = 70


def repaired_key(text: str, reference: str) -> str:
    """Return a private key with clean newlines: from CRLF, one long line, newlines written out, or a missing last one.

    Raises:
        SecretError: it is no private key, or it needs a passphrase; names the reference, never the key.

    """
    clean = text.replace("\\r", "").replace("\\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
    match = _PEM.search(clean)
    if match is None:
        raise SecretError(
            f"secret '{reference}' is no private ssh key (it must contain '-----BEGIN … PRIVATE KEY-----')"
        )
    label, body = match["label"], match["body"]
    if label == "ENCRYPTED PRIVATE KEY" or "Proc-Type: 4,ENCRYPTED" in body:
        _refuse_passphrase(reference)
    encoded = "".join(body.split())
    try:
        raw = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise SecretError(f"secret '{reference}': the private ssh key is damaged") from error
    if raw.startswith(_OPENSSH_MAGIC) and _first_text(raw[len(_OPENSSH_MAGIC) :]) != b"none":
        _refuse_passphrase(reference)
    lines = "\n".join(textwrap.wrap(encoded, _LINE))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _refuse_passphrase(reference: str) -> None:
    raise SecretError(f"secret '{reference}': the private ssh key has a passphrase; use one without")


def _first_text(raw: bytes) -> bytes:
    """Return the first length-prefixed field of an OpenSSH key: its cipher."""
    return raw[4 : 4 + int.from_bytes(raw[:4], "big")]
