"""Names of branches and tags: what could be an option, another ref or a revision expression is refused."""

import pytest

from gitops_reconciler.errors import SpecError
from gitops_reconciler.git.refs import (
    check_branch,
    check_ref,
    check_tag,
    describe,
    is_sha,
    keeper_ref,
    refspecs,
    tracking_ref,
)

SHA = "a" * 40


@pytest.mark.parametrize("name", ["main", "env/dev", "feature/x-1", "v1.2.3", "ünï", "Main", "a/b/c.d"])
def test_ordinary_names_are_accepted_byte_for_byte(name: str) -> None:
    assert check_branch(name) == f"refs/heads/{name}"
    assert check_tag(name) == f"refs/tags/{name}"


@pytest.mark.parametrize(
    "name",
    [
        "", "-x", "--upload-pack=touch PWN", "@", "HEAD", "refs/heads/main", "main@{1}", ":/c1", "HEAD~1", "a..b", "a^",
        "a b", "a\tb", "a\nb", "a\x7f", "a?", "a*", "a[", "a\\b", "/a", "a/", "a//b", ".a", "a/.b", "a.lock",
        "x.lock/y", "a.",
        SHA, "A" * 40, "b" * 64, "x" * 256, "bad\udcff",
    ],
)  # fmt: skip
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="branch name") as refused:
        check_branch(name)
    assert str(refused.value).isprintable()


def test_a_full_ref_says_what_it_is() -> None:
    for ref in ("refs/heads/main", "refs/tags/v1", SHA, "f" * 64):
        assert check_ref(ref) == ref
    for ref in ("main", "refs/pull/1/head", "refs/heads/-x", "A" * 40, "a" * 39):
        with pytest.raises(SpecError):
            check_ref(ref)


def test_only_lower_case_full_hex_is_a_sha() -> None:
    assert is_sha(SHA)
    assert is_sha("0" * 64)
    assert not is_sha("a" * 41)
    assert not is_sha("A" * 40)
    assert not is_sha(f"{SHA}\n")


def test_exactly_one_ref_is_fetched_and_never_all() -> None:
    assert refspecs("refs/heads/env/dev") == ("+refs/heads/env/dev:refs/remotes/origin/env/dev",)
    assert refspecs("refs/tags/v1") == ("+refs/tags/v1:refs/tags/v1",)
    assert tracking_ref("refs/tags/v1") == "refs/tags/v1"
    assert not any(SHA in refspec for refspec in refspecs(SHA)), "a forge serves commits of forks by SHA"


def test_refs_are_named_as_people_call_them() -> None:
    assert describe("refs/heads/env/dev") == "branch 'env/dev'"
    assert describe("refs/tags/v1") == "tag 'v1'"
    assert describe(SHA) == f"commit '{SHA}'"


@pytest.mark.parametrize(
    ("name", "ref"),
    [
        ("web", "refs/gitops/applied/web"),
        ("default/web", "refs/gitops/applied/default/web"),
        ("a..b", "refs/gitops/applied/a%2E%2Eb"),
        ("a.lock", "refs/gitops/applied/a%2Elock"),
    ],
)
def test_any_target_name_makes_a_keeper_that_git_accepts(name: str, ref: str) -> None:
    assert keeper_ref("applied", name) == ref
