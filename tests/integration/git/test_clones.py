"""Clones of people, in library use: made equal to their remote branch, and nothing untracked is touched."""

import multiprocessing
from pathlib import Path

import pytest

from gitops_reconciler.errors import (
    CheckoutBlockedError,
    RefMissingError,
    RepositoryAuthError,
    RepositoryNotFoundError,
    SpecError,
)
from gitops_reconciler.git.clones import current_sha, origin_of, sync_git
from tests.support.git_lab import GitLab
from tests.support.git_repos import GitUpstream, MakeUpstream, git
from tests.support.git_server import GitHttpServer


@pytest.fixture
def upstream(git_upstream: MakeUpstream) -> GitUpstream:
    made = git_upstream("infra")
    made.publish({"a/f": "1\n"}, "first commit")
    return made


@pytest.fixture
def clone(upstream: GitUpstream, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "--quiet", str(upstream.bare), "clone")
    return tmp_path / "clone"


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, git_root: Path) -> None:
    monkeypatch.setenv("GITOPS_GIT_ALLOW_LOCAL", str(git_root))


@pytest.mark.req("R0.23", "R4.8")
def test_a_clone_becomes_equal_to_its_remote_branch(clone: Path, upstream: GitUpstream) -> None:
    """A dirty file is restored, a local commit dropped, an untracked file kept; the branch is main by default."""
    first = current_sha(clone)
    (clone / "a" / "f").write_text("committed here\n", encoding="utf-8")
    git(clone, "commit", "--quiet", "--all", "--message=local")
    local = current_sha(clone)
    (clone / "a" / "f").write_text("edited here\n", encoding="utf-8")
    (clone / "kept").write_text("untracked\n", encoding="utf-8")
    second = upstream.publish({"b": "2\n"}, "second")
    done = sync_git(clone)
    assert (done.tree, done.old, done.new, done.subject) == (clone, local, second, "second")
    assert current_sha(clone) == second
    assert first != second
    assert (clone / "a" / "f").read_text(encoding="utf-8") == "1\n"
    assert (clone / "kept").read_text(encoding="utf-8") == "untracked\n"
    assert git(clone, "status", "--porcelain") == "?? kept"
    assert git(clone, "symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.req("R0.24")
def test_a_sync_says_whether_anything_moved(clone: Path, upstream: GitUpstream) -> None:
    assert not sync_git(clone).changed
    sha = upstream.publish({"a/f": "2\n"}, "second")
    done = sync_git(clone)
    assert (done.changed, done.new) == (True, sha)
    assert not sync_git(clone).changed


def test_an_edited_file_is_restored_although_nothing_moved(clone: Path) -> None:
    (clone / "a" / "f").unlink()
    assert not sync_git(clone).changed
    assert (clone / "a" / "f").read_text(encoding="utf-8") == "1\n"


def test_another_branch_is_followed_when_asked_for(clone: Path, upstream: GitUpstream) -> None:
    upstream.commit({"a/f": "prod\n"}, "prod")
    upstream.push("HEAD:refs/heads/env/prod")
    sync_git(clone, "env/prod")
    assert (clone / "a" / "f").read_text(encoding="utf-8") == "prod\n"


@pytest.mark.req("R4.9")
def test_an_untracked_path_in_the_way_stops_the_sync(clone: Path, upstream: GitUpstream) -> None:
    (clone / "cfg").mkdir()
    (clone / "cfg" / "db").write_text("data\n", encoding="utf-8")
    upstream.publish({"cfg": "x\n"}, "second")
    before = current_sha(clone)
    with pytest.raises(CheckoutBlockedError, match="'cfg/db'"):
        sync_git(clone)
    assert (clone / "cfg" / "db").read_text(encoding="utf-8") == "data\n"
    assert current_sha(clone) == before


@pytest.mark.req("R0.15")
def test_a_remote_that_is_away_leaves_the_clone_as_it_was(clone: Path, upstream: GitUpstream) -> None:
    before = current_sha(clone)
    (clone / "a" / "f").write_text("edited\n", encoding="utf-8")
    upstream.bare.rename(upstream.bare.with_suffix(".away"))
    with pytest.raises(RepositoryNotFoundError):
        sync_git(clone)
    assert current_sha(clone) == before
    assert (clone / "a" / "f").read_text(encoding="utf-8") == "edited\n"


def test_a_missing_branch_is_named(clone: Path) -> None:
    with pytest.raises(RefMissingError, match="branch 'none'"):
        sync_git(clone, "none")


def test_a_clone_of_an_empty_repository_gets_its_first_commit(git_upstream: MakeUpstream, tmp_path: Path) -> None:
    upstream = git_upstream("empty")
    git(tmp_path, "clone", "--quiet", str(upstream.bare), "fresh")
    with pytest.raises(RefMissingError, match="has no commit yet"):
        current_sha(tmp_path / "fresh")
    sha = upstream.publish({"a": "1\n"}, "first")
    done = sync_git(tmp_path / "fresh")
    assert (done.old, done.new) == (None, sha)


@pytest.mark.req("R4.6")
def test_the_origin_is_told_without_credentials(clone: Path, upstream: GitUpstream) -> None:
    assert origin_of(clone) == (str(upstream.bare), "main")
    git(clone, "remote", "set-url", "origin", "https://jane:t0ken@h.example/org/infra.git")
    assert origin_of(clone) == ("https://h.example/org/infra.git", "main")
    git(clone, "checkout", "--quiet", "--detach")
    git(clone, "remote", "remove", "origin")
    assert origin_of(clone) == (None, None)
    with pytest.raises(SpecError, match="no remote 'origin'"):
        sync_git(clone)


def test_a_local_remote_needs_permission(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITOPS_GIT_ALLOW_LOCAL")
    with pytest.raises(SpecError, match="GITOPS_GIT_ALLOW_LOCAL"):
        sync_git(clone)


def test_a_linked_worktree_is_synced_like_a_clone(clone: Path, upstream: GitUpstream, tmp_path: Path) -> None:
    git(clone, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    sha = upstream.publish({"a/f": "2\n"}, "second")
    assert sync_git(tmp_path / "linked").new == sha
    assert (tmp_path / "linked" / "a" / "f").read_text(encoding="utf-8") == "2\n"
    assert (clone / "a" / "f").read_text(encoding="utf-8") == "1\n"


def test_a_login_in_the_clones_own_address_works_and_stays_hidden(
    lab: GitLab, git_http: GitHttpServer, upstream: GitUpstream, clone: Path
) -> None:
    git(clone, "remote", "set-url", "origin", git_http.url_with_credentials(upstream.bare))
    sha = upstream.publish({"a/f": "2\n"}, "second")
    assert lab.clones().sync(clone).new == sha
    assert not any(git_http.password in word for argv in lab.runner.commands for word in argv)
    git_http.password = "an0ther-password"
    with pytest.raises(RepositoryAuthError) as refused:
        lab.clones().sync(clone)
    assert "s3cret" not in str(refused.value)


def test_the_credentials_file_serves_clones_too(
    lab: GitLab, git_http: GitHttpServer, upstream: GitUpstream, clone: Path
) -> None:
    git(clone, "remote", "set-url", "origin", git_http.url(upstream.bare))
    known = lab.write_credentials(f'{git_http.base_url}: {{token: "file:t"}}\n', t=git_http.password)
    assert lab.clones(known).sync(clone).new == upstream.head


def _sync(clone: Path) -> str:
    return sync_git(clone).new


def test_targets_that_share_a_clone_may_be_synced_at_once(clone: Path, upstream: GitUpstream) -> None:
    sha = upstream.publish({"a/f": "2\n"}, "second")
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert set(pool.map(_sync, [clone] * 4)) == {sha}
