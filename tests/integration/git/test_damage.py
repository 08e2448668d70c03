"""Kills, stale locks, damaged objects and stalled servers: a mirror comes back by itself, and nothing is left."""

import multiprocessing
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import (
    DeadlineExceededError,
    RepositoryCorruptError,
    RepositoryNotFoundError,
    RepositoryUnreachableError,
)
from gitops_reconciler.git.base import Repository
from gitops_reconciler.git.file_locks import hold_file
from gitops_reconciler.processes import SubprocessRunner
from tests.support.git_lab import PATIENCE_SECONDS, GitLab, processes_with, soon, text_files
from tests.support.git_repos import GitUpstream, MakeUpstream, git
from tests.support.git_server import GitHttpServer


@pytest.fixture
def upstream(git_upstream: MakeUpstream) -> GitUpstream:
    made = git_upstream("infra")
    made.publish({"a/f": "1\n", "b/f": "1\n"}, "first commit")
    return made


def wait_until(is_so: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.005)


LOCKS = ("HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "refs/remotes/origin/main.lock")


def test_stale_locks_of_a_killed_git_are_removed(lab: GitLab, upstream: GitUpstream) -> None:
    """Left alone they block every fetch, or "it was fetched but never deployed" (G75, G76)."""
    lab.deploy(upstream.url)
    upstream.publish({"a/f": "2\n"}, "second")
    mirror = lab.mirror_of(upstream.url)
    left = [mirror / name for name in LOCKS]
    left += [lab.tree() / ".git" / name for name in ("index.lock", "HEAD.lock")]
    left += [mirror / "objects" / "pack" / "tmp_pack_x", mirror / "objects" / "tmp_obj_x"]
    for path in left:
        path.write_bytes(b"")
    lab.deploy(upstream.url)
    assert text_files(lab.tree())["a/f"] == "2\n"
    assert [path for path in left if path.exists()] == []


def test_a_stale_lock_of_a_keeper_is_removed(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    (lab.mirror_of(upstream.url) / "refs" / "gitops" / "applied" / "new.lock").write_bytes(b"")
    lab.deploy(upstream.url, name="new")


def _truncate_object(mirror: Path, oid: str) -> None:
    """Make all objects loose, and one of them empty: what a power loss leaves."""
    packs = [path.rename(mirror / path.name) for path in (mirror / "objects" / "pack").glob("*.pack")]
    for path in (mirror / "objects" / "pack").glob("*.idx"):
        path.unlink()
    for path in packs:
        with path.open("rb") as pack:
            subprocess.run(["git", f"--git-dir={mirror}", "unpack-objects", "-q"], stdin=pack, check=True, timeout=30)
    loose = mirror / "objects" / oid[:2] / oid[2:]
    loose.chmod(0o600)
    loose.write_bytes(b"")


def _truncate_packs(mirror: Path) -> None:
    for path in (mirror / "objects" / "pack").glob("*.pack"):
        path.chmod(0o600)
        os.truncate(path, path.stat().st_size // 2)


def _damage(mirror: Path, kind: str, head: str) -> None:
    if kind == "zero-length ref":
        (mirror / "refs/remotes/origin/main").write_bytes(b"")
    elif kind == "empty HEAD":
        (mirror / "HEAD").write_bytes(b"")
    elif kind == "no objects folder":
        (mirror / "objects").rename(mirror / "gone")
    elif kind == "broken config":
        (mirror / "config").write_bytes(b"[core\n")
    elif kind == "truncated pack":
        _truncate_packs(mirror)
    else:
        _truncate_object(mirror, head)


DAMAGES = (
    "zero-length ref", "empty HEAD", "no objects folder", "broken config", "truncated pack", "truncated commit",
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_mirror_is_set_aside_and_made_anew(lab: GitLab, upstream: GitUpstream, damage: str) -> None:
    """Some of this no fetch ever repairs by itself (G78 to G80)."""
    lab.deploy(upstream.url)
    mirror = lab.mirror_of(upstream.url)
    _damage(mirror, damage, upstream.head)
    sha = upstream.publish({"a/f": "2\n"}, "second")
    assert lab.deploy(upstream.url).new == sha
    assert text_files(lab.tree())["a/f"] == "2\n"
    # Of a pack that can't be read at all git fetches everything again by itself.
    assert len(list(mirror.parent.glob("*.damaged-*"))) == (damage != "truncated pack")


def test_damage_that_only_a_checkout_meets_is_healed_once(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url, name="old")
    blob = git(upstream.work, "rev-parse", "HEAD:a/f")
    _truncate_object(lab.mirror_of(upstream.url), blob)
    assert lab.deploy(upstream.url).new == upstream.head
    assert text_files(lab.tree())["a/f"] == "1\n"
    assert git(lab.mirror_of(upstream.url), "rev-parse", "refs/gitops/applied/old") == upstream.head


def test_a_damaged_mirror_of_a_pinned_commit_is_made_anew_with_its_keepers(lab: GitLab, upstream: GitUpstream) -> None:
    sha = upstream.head
    lab.deploy(upstream.url, ref=sha)
    mirror = lab.mirror_of(upstream.url)
    (mirror / "gitops-damaged").write_text("said by a reader", encoding="utf-8")
    assert lab.fetch(upstream.url, sha).fetched
    assert git(mirror, "rev-parse", "refs/gitops/applied/web", f"refs/gitops/pinned/{sha}").split() == [sha, sha]


def test_damage_that_only_a_reader_meets_is_healed_by_the_next_fetch(lab: GitLab, upstream: GitUpstream) -> None:
    lab.fetch(upstream.url)
    tree = git(upstream.work, "rev-parse", "HEAD:b")
    _truncate_object(lab.mirror_of(upstream.url), tree)
    mirrors, repository = lab.mirrors(), Repository(url=upstream.url)
    with pytest.raises(RepositoryCorruptError, match="is damaged"):
        mirrors.list_files(repository, upstream.head, "b")
    mirrors.fetch(repository, asked=None, deadline=soon())
    assert set(mirrors.list_files(repository, upstream.head, "b")) == {"b/f"}


def test_a_damaged_mirror_stays_in_its_place_while_there_is_nothing_better(lab: GitLab, upstream: GitUpstream) -> None:
    lab.fetch(upstream.url)
    mirror = lab.mirror_of(upstream.url)
    (mirror / "gitops-damaged").write_text("said by a reader", encoding="utf-8")
    upstream.bare.rename(upstream.bare.with_suffix(".away"))
    with pytest.raises(RepositoryNotFoundError):
        lab.fetch(upstream.url)
    assert lab.mirrors().read_file(Repository(url=upstream.url), _state_sha(lab, upstream), "a/f") == b"1\n"
    upstream.bare.with_suffix(".away").rename(upstream.bare)
    lab.fetch(upstream.url)
    assert not (mirror / "gitops-damaged").exists()


def _state_sha(lab: GitLab, upstream: GitUpstream) -> str:
    return git(lab.mirror_of(upstream.url), "rev-parse", "refs/remotes/origin/main")


def test_the_old_revision_of_a_tree_may_be_gone_with_its_mirror(lab: GitLab, upstream: GitUpstream) -> None:
    lab.deploy(upstream.url)
    (lab.tree() / "a" / "f").write_text("edited\n", encoding="utf-8")
    (lab.tree() / "data").write_text("kept\n", encoding="utf-8")
    git(upstream.work, "commit", "--amend", "--message=rewritten")
    upstream.commit({"b/f": None, "c": "new\n"}, "second")
    upstream.push(force=True)
    for path in (lab.state / "git" / "mirror").iterdir():
        path.rename(lab.root / path.name)
    lab.deploy(upstream.url)
    assert text_files(lab.tree()) == {"a/f": "1\n", "c": "new\n", "data": "kept\n"}


def _fetch_slowly(root: Path, allowed: Path, url: str, token: str) -> None:
    lab = GitLab(root=root, allow_local=allowed)
    known = lab.write_credentials(f'{url}: {{token: "file:token"}}\n', token=token)
    lab.mirrors(known).fetch(Repository(url=url), asked=None, deadline=soon())


def test_a_killed_clone_leaves_no_half_mirror_and_no_process(
    lab: GitLab, upstream: GitUpstream, git_http: GitHttpServer
) -> None:
    """Half a clone looks like a repository, and a second clone refuses its folder (G77)."""
    git_http.delay_seconds = 0.5
    url = git_http.url(upstream.bare)
    mirror = lab.mirror_of(url)
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=_fetch_slowly, args=(lab.root, lab.allow_local, url, git_http.password))
    child.start()
    wait_until(lambda: list(mirror.parent.glob("*.new-*")), "the clone has begun")
    wait_until(lambda: processes_with(f"remote-http {url}"), "git speaks to the server")
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    assert not mirror.exists()
    git_http.delay_seconds = 0
    known = lab.write_credentials(f'{url}: {{token: "file:token"}}\n', token=git_http.password)
    revision = lab.mirrors(known).fetch(Repository(url=url), asked=None, deadline=soon())
    assert revision.sha == upstream.head
    assert processes_with(url) == {}, "our lock is held until the last git of the killed process is gone"
    assert list(mirror.parent.glob("*.new-*")) == []
    assert list(mirror.parent.glob("*.login")) == []


@contextmanager
def stalled_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    kept.append(server.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/infra"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for connection in kept:
                connection.close()


def test_a_stalled_server_ends_at_the_timeout_with_all_its_processes(lab: GitLab) -> None:
    """Killing only git leaves git-remote-http behind (G85, G86)."""
    lab.timeout_seconds = 0.5
    with stalled_server() as url:
        with pytest.raises(RepositoryUnreachableError, match=r"did not answer within 0\.5 s"):
            lab.fetch(url)
        assert processes_with(url) == {}


def test_inside_a_supervised_run_nothing_is_left_either(lab: GitLab) -> None:
    """There git stays in the run's own group, which only the supervisor may signal."""
    lab.timeout_seconds = 0.5
    lab.runner.real = SubprocessRunner(own_group=False, grace_seconds=2.0)
    with stalled_server() as url:
        with pytest.raises(RepositoryUnreachableError):
            lab.fetch(url)
        wait_until(lambda: processes_with(url) == {}, "all processes of the fetch have ended")


def _fetch_unwatched(root: Path, allowed: Path, url: str) -> None:
    lab = GitLab(root=root, allow_local=allowed)
    lab.runner.real = SubprocessRunner(own_group=False)
    lab.fetch(url)


def test_a_git_that_outlived_its_caller_still_holds_the_lock(lab: GitLab) -> None:
    """So whoever has the lock may throw away what git's own lock files say."""
    with stalled_server() as url:
        child = multiprocessing.get_context("spawn").Process(
            target=_fetch_unwatched, args=(lab.root, lab.allow_local, url)
        )
        child.start()
        wait_until(lambda: processes_with(f"remote-http {url}"), "git speaks to the server")
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        orphans = processes_with(url)
        assert orphans
        with pytest.raises(RepositoryUnreachableError, match="busy since"):
            lab.mirrors().fetch(Repository(url=url), asked=None, deadline=Deadline.after(0.2))
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
    lock = lab.mirror_of(url).with_suffix(".lock")
    with hold_file(lock, of="a test", deadline=soon()):
        assert processes_with(url) == {}


def test_the_deadline_of_the_run_counts_before_the_timeout(lab: GitLab) -> None:
    with stalled_server() as url:
        with pytest.raises(DeadlineExceededError):
            lab.mirrors().fetch(Repository(url=url), asked=None, deadline=Deadline.after(0.5))
        assert processes_with(url) == {}


def test_packs_are_merged_before_they_are_many(lab: GitLab, upstream: GitUpstream) -> None:
    for number in range(27):
        upstream.publish({"a/f": f"{number}\n"}, f"commit {number}")
        lab.fetch(upstream.url)
    assert len(list((lab.mirror_of(upstream.url) / "objects" / "pack").glob("*.pack"))) < 26
    lab.deploy(upstream.url)
    assert text_files(lab.tree())["a/f"] == "26\n"


def test_who_waits_for_a_busy_mirror_is_told_since_when(lab: GitLab, upstream: GitUpstream) -> None:
    lab.fetch(upstream.url)
    lock = lab.mirror_of(upstream.url).with_suffix(".lock")
    with (
        hold_file(lock, of="a test", deadline=soon()),
        pytest.raises(RepositoryUnreachableError, match=rf"busy since 20.* by process {os.getpid()}"),
    ):
        lab.mirrors().fetch(Repository(url=upstream.url), asked=None, deadline=Deadline.after(0.1))
