"""The signature schemes against official vectors and their limits."""

import base64
import hashlib
import hmac

import pytest

from gitops_services.receiver.base import Headers, Secrets
from gitops_services.receiver.gitlab import GitLab
from gitops_services.receiver.signatures import hub_sha256, plain_token, signing_key, standard_v1

DOCS_SECRET = b"It's a Secret to Everybody"
DOCS_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
STANDARD_KEY = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_ID, STANDARD_AT = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def secrets(*values: bytes) -> Secrets:
    return Secrets(values=values)


def test_the_documented_example_of_github_verifies() -> None:
    assert hub_sha256(DOCS_SIGNATURE, b"Hello, World!", secrets(DOCS_SECRET))


@pytest.mark.parametrize(
    "signature",
    [None, "", "sha256=", "sha1=" + "0" * 40, DOCS_SIGNATURE[:-1], DOCS_SIGNATURE + "0", DOCS_SIGNATURE[7:], "é"],
)
def test_anything_but_the_signature_does_not_verify(signature: str | None) -> None:
    assert not hub_sha256(signature, b"Hello, World!", secrets(DOCS_SECRET))


def test_any_of_several_secrets_verifies_and_an_empty_one_never_does() -> None:
    empty = "sha256=" + hmac.new(b"", b"x", hashlib.sha256).hexdigest()
    assert hub_sha256(DOCS_SIGNATURE, b"Hello, World!", secrets(b"other", DOCS_SECRET))
    assert not hub_sha256(empty, b"x", secrets(b""))
    assert not hub_sha256(DOCS_SIGNATURE, b"Hello, World!", secrets())


def test_a_token_in_clear_is_compared_as_bytes() -> None:
    assert plain_token("s\u00e9cret", secrets("s\u00e9cret".encode("latin-1")))
    assert not plain_token("s", secrets(b"secret"))
    assert not plain_token("", secrets(b""))
    assert not plain_token(None, secrets(b"secret"))


def standard(
    *,
    delivery: str | None = STANDARD_ID,
    timestamp: str | None = STANDARD_AT,
    signature: str | None = STANDARD_SIGNATURE,
    raw: bytes = STANDARD_BODY,
    keys: Secrets | None = None,
    now: float = float(STANDARD_AT),
) -> bool:
    return standard_v1(
        delivery=delivery,
        timestamp=timestamp,
        signature=signature,
        raw=raw,
        keys=keys or secrets(STANDARD_KEY),
        now=now,
    )


def test_the_official_vector_of_standard_webhooks_verifies() -> None:
    assert standard()
    assert standard(keys=secrets(b"whsec_" + base64.b64encode(b"old key"), STANDARD_KEY))


@pytest.mark.parametrize(("seconds", "verifies"), [(-301, False), (-300, True), (300, True), (301, False)])
def test_a_timestamp_counts_for_five_minutes(seconds: int, verifies: bool) -> None:
    assert standard(now=float(STANDARD_AT) + seconds) is verifies


@pytest.mark.parametrize(
    ("signature", "verifies"),
    [
        (f"v1,AAAA {STANDARD_SIGNATURE}", True),
        (f"v1a,xyz {STANDARD_SIGNATURE}", True),
        (STANDARD_SIGNATURE.replace("v1,", "v1a,"), False),
        (STANDARD_SIGNATURE.replace("v1,", ""), False),
        ("v1,", False),
        ("v1,not base64!", False),
        ("", False),
        (None, False),
    ],
)
def test_one_matching_entry_of_version_1_is_needed(signature: str | None, verifies: bool) -> None:
    assert standard(signature=signature) is verifies


@pytest.mark.parametrize(
    "timestamp", ["", "1614265330.0", "+1614265330", " 1614265330", "16142653300000", "١٦١٤٢٦٥٣٣٠", None]
)
def test_a_timestamp_that_is_no_plain_number_is_refused(timestamp: str | None) -> None:
    assert not standard(timestamp=timestamp)


def test_another_id_or_body_does_not_verify() -> None:
    assert not standard(delivery="other")
    assert not standard(raw=STANDARD_BODY + b" ")


@pytest.mark.parametrize("secret", [b"whsec_", b"whsec_!!!", b"whsec_\xff"])
def test_a_malformed_signing_token_is_no_key(secret: bytes) -> None:
    assert signing_key(secret) is None
    assert not standard(keys=secrets(secret))


def test_gitlab_does_not_fall_back_to_its_token_once_there_is_a_signing_token() -> None:
    gitlab = GitLab(clock=lambda: float(STANDARD_AT))
    both = secrets(b"token", STANDARD_KEY)
    token = (b"x-gitlab-token", b"token")
    signed = [
        (b"webhook-id", STANDARD_ID.encode()),
        (b"webhook-timestamp", STANDARD_AT.encode()),
        (b"webhook-signature", STANDARD_SIGNATURE.encode()),
    ]
    assert gitlab.verify(STANDARD_BODY, Headers([token]), secrets(b"token"))
    assert not gitlab.verify(STANDARD_BODY, Headers([token]), both)
    assert gitlab.verify(STANDARD_BODY, Headers(signed), both)
    assert not gitlab.verify(STANDARD_BODY, Headers([*signed, signed[2]]), both)
