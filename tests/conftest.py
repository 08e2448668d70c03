"""Fixtures that every test may use; what they start, they end."""

import logging
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from gitops_reconciler.redis_text import TextRedis, as_text
from tests.support.git_repos import GitUpstream, MakeUpstream
from tests.support.git_server import GitHttpServer, running_git_http
from tests.support.redis_server import running_redis
from tests.support.sshd import INSTALL as INSTALL_SSHD
from tests.support.sshd import GitSshServer, running_git_ssh
from tests.support.tools import require, summarize_missing

pytest_plugins = ["tests.req_plugin", "pytester"]

GROUPS = frozenset({"unit", "contract", "integration", "acceptance", "chaos", "bench"})


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test the mark of its folder, so that `-m unit` needs no line in every file."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder in GROUPS:
        item.add_marker(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tools were missing and how to get them."""
    lines = summarize_missing(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("missing tools", sep="-")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person who runs the tests reaches them."""
    for name in list(os.environ):
        if name.startswith(("GITOPS_", "GRID_")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A test that runs a command in this process may set up logging; the next test must not notice."""
    root, ours = logging.getLogger(), logging.getLogger("gitops_reconciler")
    handlers, level, our_level = list(root.handlers), root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state folder, which is also the setting."""
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("GITOPS_STATE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of a real server that this session owns."""
    with running_redis() as server:
        yield server.url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[TextRedis]:
    """A client of an empty database, answering text."""
    with Redis.from_url(redis_url, decode_responses=True) as client:
        client.flushdb()
        yield as_text(client)


@pytest.fixture(scope="session")
def terraform() -> Path:
    """The terraform binary."""
    return require("terraform", "make terraform, or https://developer.hashicorp.com/terraform/install")


@pytest.fixture(scope="session")
def ansible_playbook() -> Path:
    """The ansible-playbook script."""
    return require("ansible-playbook", "pip install 'gitops-reconciler[ansible]'")


@pytest.fixture(scope="session")
def sshd() -> Path:
    """The sshd binary."""
    return require("sshd", INSTALL_SSHD)


@pytest.fixture
def git_root(tmp_path: Path) -> Path:
    """The folder of this test's upstream repositories."""
    folder = tmp_path / "upstreams"
    folder.mkdir()
    return folder


@pytest.fixture
def git_upstream(git_root: Path) -> MakeUpstream:
    """Makes an upstream: `git_upstream("infra", branch="main")`."""
    return partial(GitUpstream.create, git_root)


@pytest.fixture
def git_http(git_root: Path) -> Iterator[GitHttpServer]:
    """This test's upstreams by http with basic auth: `git_http.url(upstream.bare)`."""
    with running_git_http(git_root) as server:
        yield server


@pytest.fixture
def git_ssh(sshd: Path, tmp_path: Path) -> Iterator[GitSshServer]:
    """This test's upstreams by ssh: `git_ssh.url(upstream.bare)`."""
    with running_git_ssh(tmp_path / "sshd", sshd) as server:
        yield server
