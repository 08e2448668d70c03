"""Refs, addresses and names out of payloads: compared, never trusted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_services.receiver.base import Event, EventKind, MalformedError, RefAction, RefChange
from gitops_services.receiver.refs import actor_of, change_of, keys_of, urls_of, watched_by

SHA, ZERO = "a" * 40, "0" * 40
ANYTHING = st.characters(exclude_categories=[])


def push(ref: Any = "refs/heads/main", before: Any = SHA, after: Any = SHA) -> dict[str, Any]:
    return {"ref": ref, "before": before, "after": after}


@pytest.mark.parametrize(
    ("before", "after", "action"),
    [
        (SHA, SHA, RefAction.UPDATE),
        (ZERO, SHA, RefAction.CREATE),
        (SHA, ZERO, RefAction.DELETE),
        (ZERO, ZERO, RefAction.DELETE),
        ("0" * 64, "b" * 64, RefAction.CREATE),
    ],
)
def test_zeros_tell_what_happened_to_a_ref(before: str, after: str, action: RefAction) -> None:
    assert change_of(push(before=before, after=after)).action is action


@pytest.mark.parametrize(
    "ref",
    [
        "refs/heads/main",
        "refs/heads/env/dev",
        "refs/heads/ümlaut",
        "refs/heads/refs/heads/main",
        "refs/tags/v1.0",
        "refs/x/y",
    ],
)
def test_names_that_git_allows_are_taken(ref: str) -> None:
    assert change_of(push(ref)).ref == ref


@pytest.mark.parametrize(
    "ref",
    [
        "main", "", "refs/heads/", "refs/heads//a", "refs/heads/.a", "refs/heads/a.", "refs/heads/a..b",
        "refs/heads/a.lock", "refs/heads/a.lock/b", "refs/heads/a b", "refs/heads/a\n", "refs/heads/a\x00",
        "refs/heads/a~1", "refs/heads/a^", "refs/heads/a:b", "refs/heads/a?", "refs/heads/*", "refs/heads/[a",
        "refs/heads/a\\b", "refs/heads/a@{1}", "refs/heads/a/", "refs/heads/\ud800",
        None, 1, ["refs/heads/main"], {}, True,
    ],
)  # fmt: skip
def test_names_that_git_does_not_allow_are_malformed(ref: object) -> None:
    with pytest.raises(MalformedError, match="ref"):
        change_of(push(ref))


@pytest.mark.parametrize("sha", ["", "abc", "g" * 40, "a" * 41, "a" * 40 + "\n", None, 0, ["a"], "\u0661" * 40])
def test_what_is_no_object_id_is_malformed(sha: object) -> None:
    for document in (push(before=sha), push(after=sha)):
        with pytest.raises(MalformedError):
            change_of(document)


@given(st.text(ANYTHING, max_size=80))
def test_no_address_breaks_the_comparison(url: str) -> None:
    for key in keys_of(url):
        key.encode()


@given(
    st.sampled_from(
        ["https://", "ssh://", "git@", "https://dev.azure.com/", "ssh://u:p@", "//", "file://", "https://[::1]:"]
    ),
    st.text(ANYTHING, max_size=40),
)
def test_no_address_that_looks_like_one_breaks_it_either(start: str, rest: str) -> None:
    for key in keys_of(start + rest):
        key.encode()


def test_an_event_without_any_usable_address_is_malformed() -> None:
    with pytest.raises(MalformedError):
        urls_of([None, "", "ext::sh -c id", "x" * 3000])


def test_every_address_counts_with_every_ref_but_refs_that_nobody_tracks_do_not() -> None:
    event = Event(
        kind=EventKind.PUSH,
        name="push",
        changes=tuple(
            RefChange(ref=ref, before=SHA, after=SHA) for ref in ("refs/heads/b", "refs/pull/1/head", "refs/tags/t")
        ),
        urls=("https://forge.example/Acme/Infra.git", "git@ssh.other.example:acme/infra.git"),
    )
    assert watched_by(event) == [
        "forge.example/acme/infra#refs/heads/b",
        "other.example/acme/infra#refs/heads/b",
        "forge.example/acme/infra#refs/tags/t",
        "other.example/acme/infra#refs/tags/t",
    ]


@given(st.none() | st.text(ANYTHING))
def test_an_actor_is_short_and_printable(name: str | None) -> None:
    actor = actor_of("github", name)
    assert actor.startswith("github")
    assert len(actor) <= 108
    assert actor.isprintable()
