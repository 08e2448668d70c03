"""The first ten hazards of the list: they run code, hit a foreign repository, lose data or deploy the wrong commit.

G17 and G64 are in test_checkouts.py, G77 and G86 in test_damage.py.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_reconciler.errors import RefMissingError, SpecError
from gitops_reconciler.git.base import Repository
from tests.support.git_lab import GitLab, soon, text_files
from tests.support.git_repos import GitUpstream, MakeUpstream, git


@pytest.fixture
def upstream(git_upstream: MakeUpstream) -> GitUpstream:
    made = git_upstream("infra")
    made.publish({"a/f": "1\n"}, "first commit")
    return made


def test_g01_an_address_or_a_ref_never_becomes_an_option(lab: GitLab, upstream: GitUpstream) -> None:
    pwned = lab.root / "PWNED"
    evil = f"--upload-pack=touch {pwned};git-upload-pack"
    attempts: tuple[Callable[[], object], ...] = (
        lambda: lab.fetch(evil),
        lambda: lab.fetch(upstream.url, evil),
        lambda: lab.fetch(upstream.url, f"refs/heads/{evil}"),
        lambda: lab.fetch(upstream.url, f"refs/tags/{evil}"),
        lambda: lab.clones().sync(upstream.work, evil),
    )
    for attempt in attempts:
        with pytest.raises(SpecError):
            attempt()
    assert not pwned.exists()


@pytest.mark.parametrize("url", ["ext::sh -c touch% {0}/PWNED", "git://h.example/x", "file:///etc", "/etc"])
def test_g05_g07_only_permitted_transports_are_spoken(lab: GitLab, url: str) -> None:
    with pytest.raises(SpecError):
        lab.fetch(url.format(lab.root))
    assert not (lab.root / "PWNED").exists()


@pytest.fixture
def hostile_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a service that was started from a git hook inherits; yields the repository that it belongs to."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    git(foreign, "init", "--quiet", "--initial-branch=main")
    (foreign / "work").write_text("uncommitted\n", encoding="utf-8")
    git(foreign, "add", "work")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/PWNED\n", encoding="utf-8")
        (hooks / name).chmod(0o700)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[core]\n\thooksPath = {hooks}\n\tfsmonitor = touch {tmp_path}/PWNED\n[url "{foreign}"]\n\tinsteadOf = /\n'
        f'[filter "evil"]\n\tsmudge = touch {tmp_path}/PWNED\n',
        encoding="utf-8",
    )
    values = {
        "HOME": str(home),
        "GIT_DIR": str(foreign / ".git"),
        "GIT_WORK_TREE": str(foreign),
        "GIT_INDEX_FILE": str(foreign / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(foreign / ".git" / "objects"),
        "GIT_COMMON_DIR": str(foreign / ".git"),
        "GIT_CONFIG_PARAMETERS": f"'core.hooksPath'='{hooks}'",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_ALLOW_PROTOCOL": "ext",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return foreign


def test_g14_g15_an_inherited_environment_moves_nothing_elsewhere(
    lab: GitLab, upstream: GitUpstream, hostile_environment: Path
) -> None:
    """`GIT_DIR` of a hook has `reset --hard` hit the other repository; a global hooksPath runs its hooks."""
    lab.environ = dict(os.environ)
    before = sorted(hostile_environment.rglob("*"))
    (upstream.work / ".gitattributes").write_text("* filter=evil\n", encoding="utf-8")
    upstream.publish({"a/f": "2\n"}, "second")
    lab.deploy(upstream.url)
    lab.clones().sync(upstream.work)
    assert text_files(lab.tree())["a/f"] == "2\n"
    assert sorted(hostile_environment.rglob("*")) == before
    assert git(hostile_environment, "status", "--porcelain") == "A  work"
    assert not (lab.root / "PWNED").exists()


def test_g16_no_repository_above_a_damaged_one_is_touched(lab: GitLab, upstream: GitUpstream) -> None:
    git(lab.root, "init", "--quiet", "--initial-branch=main")
    (lab.root / "mine").write_text("uncommitted\n", encoding="utf-8")
    git(lab.root, "add", "mine")
    lab.deploy(upstream.url)
    git_dir = lab.tree() / ".git"
    for name in ("HEAD", "config"):
        (git_dir / name).write_bytes(b"")
    (lab.mirror_of(upstream.url) / "HEAD").write_bytes(b"")
    upstream.publish({"a/f": "2\n"}, "second")
    lab.deploy(upstream.url)
    clone = lab.root / "clone"
    clone.mkdir()
    for broken in (False, True):
        if broken:
            (clone / ".git").mkdir()
        with pytest.raises(SpecError):
            lab.clones().sync(clone)
    assert lab.clones().origin_of(clone) == (None, None)
    assert git(lab.root, "status", "--porcelain", "--untracked-files=no") == "A  mine"
    assert text_files(lab.tree())["a/f"] == "2\n"


@pytest.mark.req("R0.23")
def test_g41_a_rewritten_branch_is_followed(lab: GitLab, upstream: GitUpstream) -> None:
    first = upstream.head
    upstream.publish({"a/f": "2\n", "old": "x\n"}, "second")
    lab.deploy(upstream.url)
    git(upstream.work, "reset", "--hard", first)
    sha = upstream.commit({"a/f": "3\n"}, "third")
    upstream.push(force=True)
    assert lab.deploy(upstream.url).new == sha
    assert text_files(lab.tree()) == {"a/f": "3\n"}


def test_g42_a_deleted_branch_is_missing_and_nothing_is_removed(lab: GitLab, upstream: GitUpstream) -> None:
    upstream.push("HEAD:refs/heads/prod")
    lab.deploy(upstream.url, ref="refs/heads/prod")
    upstream.push(":refs/heads/prod")
    with pytest.raises(RefMissingError, match="branch 'prod'"):
        lab.deploy(upstream.url, ref="refs/heads/prod")
    assert text_files(lab.tree()) == {"a/f": "1\n"}
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url, ref="refs/heads/prod")
    assert mirrors.read_file(repository, upstream.head, "a/f") == b"1\n"


def test_g45_g46_a_branch_is_not_a_tag_and_not_the_tail_of_another(lab: GitLab, upstream: GitUpstream) -> None:
    first = upstream.head
    git(upstream.work, "tag", "rel")
    upstream.push("refs/tags/rel")
    second = upstream.publish({"a/f": "2\n"}, "second")
    upstream.push("HEAD:refs/heads/rel", f"{first}:refs/heads/feature/rel")
    git(upstream.bare, "update-ref", "refs/heads/refs/heads/rel", first)
    assert lab.fetch(upstream.url, "refs/heads/rel").sha == second
    assert lab.fetch(upstream.url, "refs/tags/rel").sha == first
    with pytest.raises(RefMissingError):
        lab.fetch(upstream.url, "refs/heads/l")


def test_g27_g28_replacements_and_pull_requests_stay_outside(lab: GitLab, upstream: GitUpstream) -> None:
    good = upstream.head
    evil = upstream.commit({"a/f": "evil\n"}, "evil")
    upstream.push(f"{evil}:refs/replace/{good}", f"{evil}:refs/pull/1/head")
    lab.deploy(upstream.url)
    lab.fetch(upstream.url, good)
    assert text_files(lab.tree()) == {"a/f": "1\n"}
    names = git(lab.mirror_of(upstream.url), "for-each-ref", "--format=%(refname)").splitlines()
    assert not [name for name in names if name.startswith(("refs/replace", "refs/pull"))]


def test_g40_g19_hostile_objects_are_refused_on_arrival(lab: GitLab, upstream: GitUpstream) -> None:
    text = '[submodule "x"]\n\tpath = x\n\turl = -u./payload\n'
    upstream.publish({".gitmodules": text}, "hostile")
    with pytest.raises(SpecError, match="fsck"):
        lab.fetch(upstream.url)
    assert not lab.mirror_of(upstream.url).exists()
    mirrors = lab.mirrors()
    with pytest.raises(RefMissingError, match="has not been fetched"):
        mirrors.list_files(Repository(url=upstream.url), upstream.head, "")
    with pytest.raises(SpecError, match="fsck"):
        mirrors.checkout(Repository(url=upstream.url), upstream.head, lab.tree(), keep="web", deadline=soon())
