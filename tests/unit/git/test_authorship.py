"""Who made a commit, read from the object's own bytes."""

from __future__ import annotations

import pytest

from gitops_reconciler.git.authorship import parse_authorship

HEAD = b"tree " + b"a" * 40 + b"\n"


def commit(author: bytes) -> bytes:
    return HEAD + b"author " + author + b"\ncommitter X <x@y> 1 +0000\n\nsubject\n"


@pytest.mark.req("RM.10")
def test_name_and_time_are_read_in_the_authors_own_time_zone() -> None:
    made = parse_authorship(commit("Ånn Ø <ann@example.org> 1767225600 +0130".encode()))
    assert made is not None
    assert (made.name, made.at.isoformat()) == ("Ånn Ø", "2026-01-01T01:30:00+01:30")


def test_zones_west_of_utc_are_behind_it() -> None:
    made = parse_authorship(commit(b"Ann <a@b> 1767225600 -0500"))
    assert made is not None
    assert made.at.isoformat() == "2025-12-31T19:00:00-05:00"


@pytest.mark.parametrize(
    "content",
    [b"", b"tree x\n\nauthor Ann <a@b> 1 +0000\n", commit(b"Ann <a@b> 99999999999999999999 +0000"), b"\xff\xfe\n\n"],
)
def test_what_git_would_not_write_has_no_author(content: bytes) -> None:
    assert parse_authorship(content) is None


def test_a_name_cannot_carry_terminal_commands() -> None:
    made = parse_authorship(commit(b"An\x07n\x9b <a@b> 1767225600 +0000"))
    assert made is not None
    assert "\x07" not in made.name
    assert len(made.name) <= 100
