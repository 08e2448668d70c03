"""Mirrors over real git: what a fetch finds, what it costs, and what it says when it fails."""

import json
import multiprocessing
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from gitops_reconciler.errors import (
    DiskFullError,
    RefMissingError,
    RepositoryNotFoundError,
    SpecError,
    StoreUnavailableError,
)
from gitops_reconciler.git.base import Repository
from tests.support.git_lab import GitLab, soon, text_files
from tests.support.git_repos import GitUpstream, MakeUpstream, git


@pytest.fixture
def upstream(git_upstream: MakeUpstream) -> GitUpstream:
    made = git_upstream("infra")
    made.publish({"a/f": "1\n", "b/f": "1\n"}, "first commit")
    return made


def test_a_fetch_returns_the_tip_with_its_subject(lab: GitLab, upstream: GitUpstream) -> None:
    revision = lab.fetch(upstream.url)
    assert (revision.sha, revision.subject, revision.fetched) == (upstream.head, "first commit", True)
    sha = upstream.publish({"a/f": "2\n"}, "fix: ünï \x1b[31mred\x1b[0m\n\nbody")
    revision = lab.fetch(upstream.url)
    assert (revision.sha, revision.subject) == (sha, "fix: ünï [31mred[0m")


def test_a_look_that_finds_nothing_new_is_one_command(lab: GitLab, upstream: GitUpstream) -> None:
    lab.fetch(upstream.url)
    lab.runner.commands.clear()
    assert lab.fetch(upstream.url).fetched
    assert [argv[2] for argv in lab.runner.commands] == ["ls-remote"]


def test_an_ask_that_an_earlier_fetch_covers_starts_nothing(lab: GitLab, upstream: GitUpstream) -> None:
    first = lab.fetch(upstream.url, asked=("e1", 5))
    lab.runner.commands.clear()
    for number in (1, 5):
        again = lab.fetch(upstream.url, asked=("e1", number))
        assert (again.sha, again.subject, again.fetched) == (first.sha, first.subject, False)
    assert lab.runner.commands == []
    assert lab.fetch(upstream.url, asked=("e1", 6)).fetched
    assert lab.fetch(upstream.url, asked=("e2", 1)).fetched
    assert lab.fetch(upstream.url, asked=None).fetched


def test_each_ref_is_covered_for_itself(lab: GitLab, upstream: GitUpstream) -> None:
    upstream.push("HEAD:refs/heads/dev")
    lab.fetch(upstream.url, asked=("e1", 5))
    assert lab.fetch(upstream.url, "refs/heads/dev", asked=("e1", 5)).fetched
    assert not lab.fetch(upstream.url, asked=("e1", 5)).fetched


def test_a_failed_fetch_covers_nothing(lab: GitLab, upstream: GitUpstream) -> None:
    lab.fetch(upstream.url, asked=("e1", 1))
    upstream.bare.rename(upstream.bare.with_suffix(".away"))
    with pytest.raises(RepositoryNotFoundError):
        lab.fetch(upstream.url, asked=("e1", 2))
    upstream.bare.with_suffix(".away").rename(upstream.bare)
    assert lab.fetch(upstream.url, asked=("e1", 2)).fetched


def test_one_fetch_serves_all_who_asked_until_it_began(lab: GitLab, upstream: GitUpstream) -> None:
    """A push to a monorepo of n targets costs one look and one download on a host."""
    lab.fetch(upstream.url, asked=("e1", 1))
    sha = upstream.publish({"a/f": "2\n"}, "second")
    lab.runner.commands.clear()
    lab.runner.held_word = "ls-remote"
    mirrors = lab.mirrors(latest=lambda _key: ("e1", 9))
    repository = Repository(url=upstream.url)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(mirrors.fetch, repository, asked=("e1", 2), deadline=soon())
        assert lab.runner.reached.wait(10)
        others = [pool.submit(mirrors.fetch, repository, asked=("e1", n), deadline=soon()) for n in range(3, 10)]
        lab.runner.release.set()
        revisions = [future.result(30) for future in (first, *others)]
    assert {revision.sha for revision in revisions} == {sha}
    assert lab.runner.count("ls-remote") == 1
    assert lab.runner.count("fetch") == 1


def test_an_ask_after_the_fetch_began_causes_another_one(lab: GitLab, upstream: GitUpstream) -> None:
    lab.runner.held_word = "ls-remote"
    mirrors = lab.mirrors(latest=lambda _key: ("e1", 4))
    repository = Repository(url=upstream.url)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(mirrors.fetch, repository, asked=("e1", 4), deadline=soon())
        assert lab.runner.reached.wait(10)
        later = pool.submit(mirrors.fetch, repository, asked=("e1", 5), deadline=soon())
        lab.runner.release.set()
        assert first.result(30).fetched
        assert later.result(30).fetched
    assert lab.runner.count("ls-remote") == 2


def test_the_counter_is_read_with_the_repository_key(lab: GitLab, upstream: GitUpstream) -> None:
    keys: list[str] = []

    def latest(key: str) -> tuple[str, int]:
        keys.append(key)
        raise StoreUnavailableError("the store is away")

    mirrors = lab.mirrors(latest=latest)
    assert mirrors.fetch(Repository(url=upstream.url), asked=("e1", 3), deadline=soon()).fetched
    assert keys == [str(upstream.bare)]
    assert not lab.fetch(upstream.url, asked=("e1", 3)).fetched


def _fetch_in_a_process(root: Path, allowed: Path, url: str) -> str:
    return GitLab(root=root, allow_local=allowed).fetch(url).sha


def test_eight_processes_may_fetch_at_once(lab: GitLab, upstream: GitUpstream) -> None:
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        arguments = [(lab.root, lab.allow_local, upstream.url)] * 8
        first = pool.starmap(_fetch_in_a_process, arguments)
        sha = upstream.publish({"a/f": "2\n"}, "second")
        second = pool.starmap(_fetch_in_a_process, arguments)
    assert len(set(first)) == 1
    assert set(second) == {sha}


def test_branches_tags_and_shas_are_fetched(lab: GitLab, upstream: GitUpstream) -> None:
    first = upstream.head
    git(upstream.work, "tag", "light")
    git(upstream.work, "tag", "--annotate", "--message=release", "heavy")
    git(upstream.work, "tag", "--annotate", "--message=twice", "nested", "heavy")
    upstream.push("refs/tags/light", "refs/tags/heavy", "refs/tags/nested")
    upstream.publish({"a/f": "2\n"}, "second")
    for tag in ("light", "heavy", "nested"):
        assert lab.fetch(upstream.url, f"refs/tags/{tag}").sha == first, "an annotated tag is peeled to its commit"
    upstream.push("HEAD:refs/heads/env/dev")
    assert lab.fetch(upstream.url, "refs/heads/env/dev").sha == upstream.head
    assert lab.fetch(upstream.url, first).sha == first


def test_a_moved_tag_is_followed(lab: GitLab, upstream: GitUpstream) -> None:
    git(upstream.work, "tag", "v1")
    upstream.push("refs/tags/v1")
    lab.fetch(upstream.url, "refs/tags/v1")
    sha = upstream.publish({"a/f": "2\n"}, "second")
    git(upstream.work, "tag", "--force", "v1")
    upstream.push("refs/tags/v1", force=True)
    assert lab.fetch(upstream.url, "refs/tags/v1").sha == sha


def test_a_pinned_commit_needs_no_network_once_it_was_found(lab: GitLab, upstream: GitUpstream) -> None:
    sha = upstream.head
    upstream.publish({"a/f": "2\n"}, "second")
    lab.fetch(upstream.url, sha)
    shutil.rmtree(upstream.bare)
    again = lab.fetch(upstream.url, sha)
    assert (again.sha, again.fetched) == (sha, False)


def test_a_commit_on_no_branch_or_tag_is_refused(lab: GitLab, upstream: GitUpstream) -> None:
    """A forge hands out commits of foreign forks by their SHA (G54)."""
    sha = upstream.commit({"a/f": "evil\n"}, "of a fork")
    upstream.push("HEAD:refs/pull/1/head")
    with pytest.raises(RefMissingError, match="on no branch or tag"):
        lab.fetch(upstream.url, sha)


def test_a_tag_that_names_no_commit_is_refused(lab: GitLab, upstream: GitUpstream) -> None:
    git(upstream.work, "tag", "tree", "HEAD^{tree}")
    upstream.push("refs/tags/tree")
    with pytest.raises(RefMissingError, match="names no commit"):
        lab.fetch(upstream.url, "refs/tags/tree")


def test_a_missing_branch_says_what_there_is(lab: GitLab, git_upstream: MakeUpstream) -> None:
    upstream = git_upstream("renamed", branch="trunk")
    upstream.publish({"a": "1"}, "first")
    with pytest.raises(RefMissingError, match="default branch is 'trunk'") as missing:
        lab.fetch(upstream.url)
    assert upstream.bare.as_posix() in str(missing.value)
    assert not lab.mirror_of(upstream.url).exists()


def test_an_empty_repository_is_called_empty(lab: GitLab, git_upstream: MakeUpstream) -> None:
    upstream = git_upstream("empty")
    with pytest.raises(RefMissingError, match="is empty"):
        lab.fetch(upstream.url)
    sha = upstream.publish({"a": "1"}, "first")
    assert lab.fetch(upstream.url).sha == sha


def test_a_repository_that_is_not_there_is_named(lab: GitLab, git_root: Path) -> None:
    with pytest.raises(RepositoryNotFoundError, match=r"none\.git"):
        lab.fetch((git_root / "none.git").as_uri())


def test_a_branch_may_take_the_place_of_another(lab: GitLab, upstream: GitUpstream) -> None:
    """`feat` was deleted and `feat/x` made: refs of one mirror would be in each other's way (G43)."""
    upstream.push("HEAD:refs/heads/feat")
    lab.fetch(upstream.url, "refs/heads/feat")
    upstream.push(":refs/heads/feat")
    upstream.push("HEAD:refs/heads/feat/x")
    assert lab.fetch(upstream.url, "refs/heads/feat/x").sha == upstream.head
    upstream.push(":refs/heads/feat/x")
    upstream.push("HEAD:refs/heads/feat")
    assert lab.fetch(upstream.url, "refs/heads/feat").sha == upstream.head


def test_a_repository_with_long_object_ids_works(lab: GitLab, git_root: Path) -> None:
    work = git_root / "long"
    git(git_root, "init", "--quiet", "--object-format=sha256", "--initial-branch=main", str(work))
    (work / "f").write_text("1\n", encoding="utf-8")
    git(work, "add", "f")
    git(work, "commit", "--quiet", "--message=first")
    done = lab.deploy(work.as_uri())
    assert len(done.new) == 64
    assert text_files(lab.tree()) == {"f": "1\n"}
    assert lab.deploy(work.as_uri()).old == done.new


def test_nothing_is_fetched_onto_a_full_disk(
    lab: GitLab, upstream: GitUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1 << 20))
    with pytest.raises(DiskFullError, match="only 1 MiB are free"):
        lab.fetch(upstream.url)


def test_files_are_read_from_the_mirror_without_a_checkout(lab: GitLab, upstream: GitUpstream) -> None:
    (upstream.work / "b" / "link").symlink_to("f")
    git(upstream.work, "config", "core.quotePath", "true")
    sha = upstream.publish({'b/ünï \t\n"': "odd\n", "b/deep/er/x": "2\n"}, "second")
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url)
    mirrors.fetch(repository, asked=None, deadline=soon())
    listed = mirrors.list_files(repository, sha, "b/")
    assert set(listed) == {"b/f", 'b/ünï \t\n"', "b/deep/er/x"}
    assert listed["b/f"] == git(upstream.work, "rev-parse", "HEAD:b/f")
    assert mirrors.read_file(repository, sha, 'b/ünï \t\n"') == b"odd\n"
    assert mirrors.read_file(repository, sha, "b/link") is None
    assert mirrors.read_file(repository, sha, "b") is None
    assert mirrors.read_file(repository, sha, "b/f/x") is None
    assert mirrors.read_files(repository, sha, ["a/f", "none", "b/f"]) == {"a/f": b"1\n", "b/f": b"1\n"}
    assert mirrors.list_files(repository, sha, "none") == {}
    assert len(mirrors.list_files(repository, sha, "")) == 4
    with pytest.raises(RefMissingError, match="is not on this host"):
        mirrors.list_files(repository, "0" * 40, "")


def test_a_file_name_that_is_no_utf8_is_no_trouble(lab: GitLab, upstream: GitUpstream) -> None:
    (upstream.work / "bad\udcff.yml").write_text("x", encoding="utf-8")
    sha = upstream.publish({}, "odd name")
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url)
    mirrors.fetch(repository, asked=None, deadline=soon())
    assert mirrors.read_file(repository, sha, "bad\udcff.yml") == b"x"
    mirrors.checkout(repository, sha, lab.tree(), keep="web", deadline=soon())
    assert (lab.tree() / "bad\udcff.yml").exists()


def test_equal_folders_are_told_by_their_trees(lab: GitLab, upstream: GitUpstream) -> None:
    one, other = upstream.head, upstream.publish({"a/f": "2\n"}, "second")
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url)
    assert not mirrors.same_tree(repository, one, one, ""), "nothing is known before the first fetch"
    mirrors.fetch(repository, asked=None, deadline=soon())
    for folder in ("b", "b/", "./b"):
        assert mirrors.same_tree(repository, one, other, folder)
    assert mirrors.same_tree(repository, one, other, "none")
    assert not mirrors.same_tree(repository, one, other, "a")
    assert not mirrors.same_tree(repository, one, other, "a/f")
    assert not mirrors.same_tree(repository, one, other, "")
    assert not mirrors.same_tree(repository, one, "0" * 40, "b")


def test_a_bomb_of_few_objects_is_not_walked_to_its_end(lab: GitLab, upstream: GitUpstream) -> None:
    """Twelve objects name 10^10 paths (G29)."""
    blob = git(upstream.work, "hash-object", "-w", "a/f")
    tree = _make_tree(upstream.work, [f"100644 blob {blob}\tf{n}" for n in range(10)])
    for _ in range(9):
        tree = _make_tree(upstream.work, [f"040000 tree {tree}\td{n}" for n in range(10)])
    sha = git(upstream.work, "commit-tree", "-m", "bomb", tree)
    upstream.push(f"{sha}:refs/heads/bomb")
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url, ref="refs/heads/bomb")
    mirrors.fetch(repository, asked=None, deadline=soon())
    with pytest.raises(SpecError, match="more than"):
        mirrors.list_files(repository, sha, "")
    with pytest.raises(SpecError, match="more than"):
        mirrors.checkout(repository, sha, lab.tree(), keep="web", deadline=soon())


def _make_tree(folder: Path, lines: list[str]) -> str:
    listing = folder / "listing"
    listing.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    try:
        return git(folder, "-c", "alias.made=!git mktree < listing", "made")
    finally:
        listing.unlink()


def test_the_state_of_a_mirror_holds_counters_and_no_clock(lab: GitLab, upstream: GitUpstream) -> None:
    lab.fetch(upstream.url, asked=("e1", 5))
    state = json.loads((lab.mirror_of(upstream.url) / "gitops-state.json").read_text(encoding="utf-8"))
    assert state["refs"]["refs/heads/main"] == {
        "asked": 5,
        "epoch": "e1",
        "sha": upstream.head,
        "subject": "first commit",
        "tip": upstream.head,
    }
