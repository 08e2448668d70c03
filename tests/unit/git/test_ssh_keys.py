"""Private keys as people paste them (hazard G96)."""

import base64
import textwrap

import pytest

from gitops_reconciler.errors import SecretError
from gitops_reconciler.git.ssh_keys import repaired_key


def openssh_key(cipher: bytes = b"none") -> str:
    raw = b"openssh-key-v1\0" + len(cipher).to_bytes(4, "big") + cipher + bytes(range(200))
    body = "\n".join(textwrap.wrap(base64.b64encode(raw).decode(), 70))
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n"


GOOD = openssh_key()


@pytest.mark.parametrize(
    "damaged",
    [
        GOOD,
        GOOD.rstrip("\n"),
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", " "),
        GOOD.replace("\n", "\\n"),
        f"\n\n  {GOOD}  \n",
        textwrap.indent(GOOD, "    "),
    ],
)
def test_newlines_are_repaired(damaged: str) -> None:
    assert repaired_key(damaged, "file:key") == GOOD


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ssh-ed25519 AAAAC3Nz public", "no private ssh key"),
        ("", "no private ssh key"),
        (openssh_key(b"aes256-ctr"), "passphrase"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----", "passphrase"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----",
            "passphrase",
        ),
        ("-----BEGIN RSA PRIVATE KEY-----\nAA*A\n-----END RSA PRIVATE KEY-----", "damaged"),
    ],
)
def test_what_can_never_work_is_refused_by_its_reference(text: str, why: str) -> None:
    with pytest.raises(SecretError, match=why) as refused:
        repaired_key(text, "file:key")
    assert "file:key" in str(refused.value)
    assert "AA" not in str(refused.value)
