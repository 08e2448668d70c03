"""Checkouts over real git: what is reset, what is left alone, and what stops one before anything is lost."""

import os
from pathlib import Path

import pytest

from gitops_reconciler.errors import CheckoutBlockedError, GitError, RefMissingError, SpecError
from gitops_reconciler.git.base import Repository
from tests.support.git_lab import GitLab, soon, text_files
from tests.support.git_repos import GitUpstream, MakeUpstream, git


@pytest.fixture
def upstream(git_upstream: MakeUpstream) -> GitUpstream:
    made = git_upstream("infra")
    made.publish({"a/f": "1\n", "b/f": "1\n"}, "first commit")
    return made


@pytest.mark.req("T8")
def test_a_checkout_is_pinned_to_its_revision(lab: GitLab, upstream: GitUpstream) -> None:
    done = lab.deploy(upstream.url)
    assert (done.tree, done.old, done.new, done.subject) == (lab.tree(), None, upstream.head, "first commit")
    assert done.changed
    first, second = upstream.head, upstream.publish({"a/f": "2\n", "c": "new\n", "b/f": None}, "second")
    done = lab.deploy(upstream.url)
    assert (done.old, done.new) == (first, second)
    assert text_files(lab.tree()) == {"a/f": "2\n", "c": "new\n"}
    assert git(lab.tree(), "rev-parse", "HEAD") == second
    assert git(lab.tree(), "status", "--porcelain") == ""


def test_a_checkout_that_is_there_already_is_one_command(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    lab.runner.commands.clear()
    done = lab.deploy(upstream.url)
    assert not done.changed
    assert done.subject == "first commit"
    assert [next(word for word in argv[1:] if not word.startswith("--")) for argv in lab.runner.commands] == [
        "ls-remote",
        "status",
    ]


@pytest.mark.req("R4.8", "R4.9", "T7")
def test_tracked_files_are_reset_and_untracked_ones_left_alone(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    tree = lab.tree()
    (tree / "a" / "f").write_text("edited\n", encoding="utf-8")
    (tree / "b" / "f").unlink()
    (tree / "archive" / "x").mkdir(parents=True)
    (tree / "archive" / "x" / "main.tf").write_text("kept\n", encoding="utf-8")
    (tree / "a" / "terraform.tfstate").write_text("kept\n", encoding="utf-8")
    assert not lab.deploy(upstream.url).changed
    upstream.publish({"a/f": None}, "a is gone")
    lab.deploy(upstream.url)
    assert text_files(tree) == {"b/f": "1\n", "archive/x/main.tf": "kept\n", "a/terraform.tfstate": "kept\n"}


@pytest.mark.req("R0.61")
def test_a_revert_or_a_rewound_branch_is_followed(lab: GitLab, upstream: GitUpstream) -> None:
    first = upstream.head
    second = upstream.publish({"a/f": "bad\n"}, "bad")
    lab.deploy(upstream.url)
    git(upstream.work, "reset", "--hard", first)
    upstream.push(force=True)
    done = lab.deploy(upstream.url)
    assert (done.old, done.new) == (second, first)
    assert text_files(lab.tree())["a/f"] == "1\n"


def test_the_keeper_holds_on_to_the_revision(lab: GitLab, upstream: GitUpstream) -> None:
    """A rewritten history must not take the revision that a tear-down needs (G58)."""
    first = upstream.head
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url)
    lab.deploy(upstream.url)
    mirror = lab.mirror_of(upstream.url)
    assert git(mirror, "rev-parse", "refs/gitops/applied/web") == first
    git(upstream.work, "commit", "--amend", "--message=rewritten")
    upstream.push(force=True)
    second = mirrors.fetch(repository, asked=None, deadline=soon()).sha
    mirrors.checkout(repository, second, lab.tree(), keep="web", deadline=soon(), applied=first)
    git(mirror, "-c", "gc.pruneExpire=now", "gc", "--quiet", "--prune=now")
    assert git(mirror, "rev-parse", "refs/gitops/applied/web") == second
    assert git(mirror, "cat-file", "-t", first) == "commit"
    mirrors.checkout(repository, first, lab.tree(), keep="web", deadline=soon())
    assert text_files(lab.tree())["a/f"] == "1\n"


def test_a_lost_keeper_comes_back_without_a_change(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    mirror = lab.mirror_of(upstream.url)
    git(mirror, "update-ref", "-d", "refs/gitops/applied/web")
    lab.deploy(upstream.url)
    assert git(mirror, "rev-parse", "refs/gitops/applied/web") == upstream.head
    git(mirror, "pack-refs", "--all")
    lab.runner.commands.clear()
    lab.deploy(upstream.url)
    assert lab.runner.count("update-ref") == 0


def test_targets_of_one_repository_share_a_mirror_and_nothing_else(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url, name="one")
    upstream.publish({"a/f": "2\n"}, "second")
    lab.deploy(upstream.url, name="two")
    assert text_files(lab.tree("one"))["a/f"] == "1\n"
    assert text_files(lab.tree("two"))["a/f"] == "2\n"
    assert len(list((lab.state / "git" / "mirror").glob("*.git"))) == 1


@pytest.mark.parametrize("has_content", [True, False])
def test_an_untracked_folder_where_a_file_comes_is_never_deleted(
    lab: GitLab, upstream: GitUpstream, has_content: bool
) -> None:
    """Docker makes a folder for a missing bind source, and `reset --hard` deletes it with its content (G64)."""
    first = lab.deploy(upstream.url).new
    (lab.tree() / "cfg.yml").mkdir()
    if has_content:
        (lab.tree() / "cfg.yml" / "db").write_text("data\n", encoding="utf-8")
    upstream.publish({"cfg.yml": "x\n", "a/f": "2\n"}, "second")
    if not has_content:
        lab.deploy(upstream.url)
        assert text_files(lab.tree()) == {"a/f": "2\n", "b/f": "1\n", "cfg.yml": "x\n"}
        return
    with pytest.raises(CheckoutBlockedError, match=r"'cfg\.yml/db'"):
        lab.deploy(upstream.url)
    assert text_files(lab.tree()) == {"a/f": "1\n", "b/f": "1\n", "cfg.yml/db": "data\n"}
    assert git(lab.tree(), "rev-parse", "HEAD") == first
    (lab.tree() / "cfg.yml").rename(lab.tree() / "moved")
    lab.deploy(upstream.url)
    assert text_files(lab.tree())["cfg.yml"] == "x\n"
    assert text_files(lab.tree())["moved/db"] == "data\n"


def test_an_untracked_file_where_a_file_comes_is_never_overwritten(lab: GitLab, upstream: GitUpstream) -> None:
    """G65; a file that is equal already is no obstacle."""
    lab.deploy(upstream.url)
    (lab.tree() / ".env").write_text("mine\n", encoding="utf-8")
    (lab.tree() / "same").write_text("same\n", encoding="utf-8")
    (lab.tree() / "sub").write_text("a file\n", encoding="utf-8")
    upstream.publish({".env": "theirs\n", "same": "same\n", "sub/x": "1\n"}, "second")
    with pytest.raises(CheckoutBlockedError) as blocked:
        lab.deploy(upstream.url)
    assert "'.env', 'sub'" in str(blocked.value)
    assert "same" not in str(blocked.value)
    assert text_files(lab.tree())[".env"] == "mine\n"
    (lab.tree() / ".env").unlink()
    (lab.tree() / "sub").unlink()
    lab.deploy(upstream.url)
    assert text_files(lab.tree())["sub/x"] == "1\n"


def test_data_that_took_the_place_of_a_tracked_file_is_never_deleted(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    (lab.tree() / "a" / "f").unlink()
    (lab.tree() / "a" / "f").mkdir()
    (lab.tree() / "a" / "f" / "db").write_text("data\n", encoding="utf-8")
    (lab.tree() / "b" / "f").unlink()
    (lab.tree() / "b").rmdir()
    (lab.tree() / "b").symlink_to(lab.root)
    with pytest.raises(CheckoutBlockedError, match="'a/f/db', 'b'"):
        lab.deploy(upstream.url)
    assert (lab.tree() / "a" / "f" / "db").read_text(encoding="utf-8") == "data\n"
    assert (lab.tree() / "b").is_symlink()


def test_a_tracked_folder_may_become_a_file_and_back(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    upstream.publish({"b/f": None}, "b is gone")
    (upstream.work / "b").rmdir()
    upstream.publish({"b": "a file\n"}, "b is a file")
    lab.deploy(upstream.url)
    assert text_files(lab.tree()) == {"a/f": "1\n", "b": "a file\n"}
    upstream.publish({"b": None}, "b is gone")
    upstream.publish({"b/f": "1\n"}, "b is a folder")
    lab.deploy(upstream.url)
    assert text_files(lab.tree()) == {"a/f": "1\n", "b/f": "1\n"}


@pytest.mark.parametrize(
    "links",
    [
        {"a/docker-compose.yml": "/etc/passwd"},
        {"b/root": "/"},
        {"up": "../.."},
        {"first": "second", "second": "b/third", "b/third": "../../x"},
    ],
)
def test_a_symlink_that_leaves_the_tree_is_refused(lab: GitLab, upstream: GitUpstream, links: dict[str, str]) -> None:
    """Whoever may push could have any file of the control machine read (G17)."""
    first = lab.deploy(upstream.url).new
    for path, target in links.items():
        (upstream.work / path).symlink_to(target)
    upstream.publish({"a/f": "2\n"}, "with links")
    with pytest.raises(SpecError, match="symlinks that leave the repository") as refused:
        lab.deploy(upstream.url)
    assert next(iter(links)) in str(refused.value)
    assert text_files(lab.tree())["a/f"] == "1\n"
    assert git(lab.tree(), "rev-parse", "HEAD") == first


def test_links_inside_are_fine_and_only_the_folder_in_use_counts(lab: GitLab, upstream: GitUpstream) -> None:
    (upstream.work / "a" / "inside").symlink_to("../b/f")
    (upstream.work / "b" / "outside").symlink_to("/etc/passwd")
    sha = upstream.publish({}, "with links")
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url)
    mirrors.fetch(repository, asked=None, deadline=soon())
    mirrors.checkout(repository, sha, lab.tree(), keep="web", deadline=soon(), within="a")
    assert (lab.tree() / "a" / "inside").read_text(encoding="utf-8") == "1\n"
    with pytest.raises(SpecError, match="b/outside"):
        mirrors.checkout(repository, sha, lab.tree("all"), keep="all", deadline=soon())


def test_submodules_and_lfs_pointers_are_no_trouble(lab: GitLab, upstream: GitUpstream) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    git(upstream.work, "update-index", "--add", "--cacheinfo", f"160000,{upstream.head},sub")
    git(upstream.work, "commit", "--quiet", "--message=submodule")
    (upstream.work / "sub").mkdir()
    files = {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "x.bin": pointer}
    for name, content in files.items():
        (upstream.work / name).write_text(content, encoding="utf-8")
    git(upstream.work, "add", *files)
    git(upstream.work, "commit", "--quiet", "--message=lfs")
    upstream.push()
    lab.deploy(upstream.url)
    assert text_files(lab.tree())["x.bin"] == pointer
    assert not lab.deploy(upstream.url).changed


def test_a_file_that_git_calls_changed_for_ever_is_not_written_again_and_again(
    lab: GitLab, upstream: GitUpstream
) -> None:
    """Committed with CRLF, then `.gitattributes` says `eol=lf` (G35)."""
    (upstream.work / "crlf").write_bytes(b"x\r\ny\r\n")
    upstream.publish({}, "crlf")
    (upstream.work / ".gitattributes").write_text("* text eol=lf\n", encoding="utf-8")
    git(upstream.work, "add", ".gitattributes")
    git(upstream.work, "commit", "--quiet", "--message=attributes")
    upstream.push()
    lab.deploy(upstream.url)
    assert (lab.tree() / "crlf").read_bytes() == b"x\r\ny\r\n"
    lab.runner.commands.clear()
    assert not lab.deploy(upstream.url).changed
    assert lab.runner.count("checkout") == 0


def test_a_tree_that_was_removed_moved_or_restored_is_taken_up_again(lab: GitLab, upstream: GitUpstream) -> None:
    """Linked worktrees register themselves, and then these are endless loops (G72, G73)."""
    lab.deploy(upstream.url)
    lab.tree().rename(lab.root / "elsewhere")
    assert lab.deploy(upstream.url).old is None
    moved = lab.root / "moved"
    lab.state.rename(moved)
    other = GitLab(root=lab.root / "new", allow_local=lab.allow_local)
    other.root.mkdir()
    moved.rename(other.state)
    done = other.deploy(upstream.url)
    assert not done.changed
    assert git(other.tree(), "log", "-1", "--format=%s") == "first commit"


@pytest.mark.parametrize("damage", ["gone", "file", "head", "index", "config", "alternates"])
def test_a_damaged_repository_of_a_checkout_is_repaired(lab: GitLab, upstream: GitUpstream, damage: str) -> None:
    lab.deploy(upstream.url)
    git_dir = lab.tree() / ".git"
    (lab.tree() / "data").write_text("kept\n", encoding="utf-8")
    if damage in {"gone", "file"}:
        git_dir.rename(lab.root / "old")
    if damage == "file":
        git_dir.write_text("gitdir: /nowhere\n", encoding="utf-8")
    if damage == "head":
        (git_dir / "HEAD").write_text("", encoding="utf-8")
    if damage == "index":
        (git_dir / "index").write_bytes(b"")
    if damage == "config":
        (git_dir / "config").write_text("[core]\n\tfsmonitor = touch PWN\n\tbare = true\n", encoding="utf-8")
    if damage == "alternates":
        (git_dir / "objects" / "info" / "alternates").unlink()
    sha = upstream.publish({"a/f": "2\n"}, "second") if damage not in {"gone", "file", "head"} else upstream.head
    assert lab.deploy(upstream.url).new == sha
    assert text_files(lab.tree())["data"] == "kept\n"
    assert git(lab.tree(), "status", "--porcelain") == "?? data"
    assert not (lab.root / "PWN").exists()


def test_a_checkout_that_was_cut_off_is_taken_up_again(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    sha = upstream.publish({"new": "whole\n", "a/f": "2\n"}, "second")
    (lab.tree() / ".git" / "gitops-moving").write_text(sha, encoding="ascii")
    (lab.tree() / ".git" / "index.lock").write_bytes(b"")
    (lab.tree() / "new").write_text("who", encoding="utf-8")
    lab.fetch(upstream.url)
    lab.deploy(upstream.url)
    assert text_files(lab.tree()) == {"a/f": "2\n", "b/f": "1\n", "new": "whole\n"}
    assert not (lab.tree() / ".git" / "gitops-moving").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may replace every file")
def test_a_file_that_may_not_be_replaced_is_named_with_its_owner(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    upstream.publish({"a/f": "2\n"}, "second")
    (lab.tree() / "a").chmod(0o500)
    try:
        with pytest.raises(Exception, match=f"belongs to user {os.geteuid()}"):
            lab.deploy(upstream.url)
    finally:
        (lab.tree() / "a").chmod(0o700)
    lab.deploy(upstream.url)
    assert text_files(lab.tree())["a/f"] == "2\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_somebody_else_is_refused(lab: GitLab, upstream: GitUpstream) -> None:
    """With an explicit --git-dir git itself does not look at the owner (G69)."""
    lab.deploy(upstream.url)
    for folder in (lab.tree() / ".git", lab.mirror_of(upstream.url), upstream.bare):
        os.chown(folder, 12345, 12345)
        with pytest.raises(GitError, match=r"belongs to (user 12345|another user)"):
            lab.deploy(upstream.url)
        os.chown(folder, 0, 0)
    assert not lab.deploy(upstream.url).changed


def test_only_a_full_sha_that_was_fetched_is_checked_out(lab: GitLab, upstream: GitUpstream) -> None:
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url)
    mirrors.fetch(repository, asked=None, deadline=soon())
    for name in ("main", "--orphan=x", "HEAD", upstream.head[:12]):
        with pytest.raises(SpecError, match="no full SHA"):
            mirrors.checkout(repository, name, lab.tree(), keep="web", deadline=soon())
    with pytest.raises(RefMissingError, match="on no branch or tag"):
        mirrors.checkout(repository, "0" * 40, lab.tree(), keep="web", deadline=soon())


def test_a_revision_that_is_not_on_this_host_is_fetched(lab: GitLab, upstream: GitUpstream) -> None:
    """A tear-down may run on another host than the last apply."""
    first = upstream.head
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url)
    assert mirrors.checkout(repository, first, lab.tree(), keep="web", deadline=soon()).new == first
    second = upstream.publish({"a/f": "2\n"}, "second")
    upstream.publish({"a/f": "3\n"}, "third")
    mirrors.checkout(repository, second, lab.tree(), keep="web", deadline=soon())
    assert text_files(lab.tree())["a/f"] == "2\n"


def test_a_tool_that_asks_git_inside_a_checkout_gets_its_own_answer(lab: GitLab, upstream: GitUpstream) -> None:
    git(lab.root, "init", "--quiet")
    lab.deploy(upstream.url)
    assert Path(git(lab.tree() / "a", "rev-parse", "--show-toplevel")) == lab.tree()
    assert git(lab.tree(), "remote", "get-url", "origin") == str(upstream.bare)
