"""Private repositories over http and ssh: the right login works, a wrong one says so, and no secret shows anywhere."""

import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gitops_reconciler.errors import (
    GitError,
    RepositoryAuthError,
    RepositoryNotFoundError,
    RepositoryUnreachableError,
    SpecError,
)
from gitops_reconciler.git import credentials as credentials_module
from gitops_reconciler.git.base import Repository
from gitops_reconciler.git.credentials import Credentials
from tests.support.git_lab import GitLab, soon, text_files
from tests.support.git_repos import GitUpstream, MakeUpstream
from tests.support.git_server import GitHttpServer
from tests.support.sshd import GitSshServer

TOKEN_ENTRY = '{{username: git, token: "file:token"}}'
ANSWER = Path(credentials_module.__file__).with_name("answer_credential.sh")


@pytest.fixture
def upstream(git_upstream: MakeUpstream) -> GitUpstream:
    made = git_upstream("infra")
    made.publish({"a/f": "1\n"}, "first commit")
    return made


def login(lab: GitLab, prefix: str, token: str) -> Credentials:
    return lab.write_credentials(f'{prefix}: {{username: git, token: "file:token"}}\n', token=token)


def test_a_token_opens_a_private_repository(lab: GitLab, git_http: GitHttpServer, upstream: GitUpstream) -> None:
    known = login(lab, git_http.base_url, f"{git_http.password}\n")
    mirrors, repository = lab.mirrors(known), Repository(url=git_http.url(upstream.bare))
    revision = mirrors.fetch(repository, asked=None, deadline=soon())
    assert revision.sha == upstream.head
    mirrors.checkout(repository, revision.sha, lab.tree(), keep="web", deadline=soon())
    assert text_files(lab.tree()) == {"a/f": "1\n"}


@pytest.mark.req("R4.6")
def test_a_wrong_token_is_an_auth_error_that_names_no_secret(
    lab: GitLab, git_http: GitHttpServer, upstream: GitUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = git_http.url(upstream.bare)
    mirrors = lab.mirrors(login(lab, git_http.base_url, "wr0ng-t0ken"))
    with pytest.raises(RepositoryAuthError, match="the login was refused") as refused:
        mirrors.fetch(Repository(url=url), asked=None, deadline=soon())
    assert url in str(refused.value)
    assert "GITOPS_GIT_CREDENTIALS_FILE" in str(refused.value)
    assert "wr0ng-t0ken" not in f"{refused.value!r}{caplog.text}"
    assert not lab.mirror_of(url).exists()


def test_without_a_login_nobody_is_prompted(lab: GitLab, git_http: GitHttpServer, upstream: GitUpstream) -> None:
    with pytest.raises(RepositoryAuthError):
        lab.fetch(git_http.url(upstream.bare))


def test_a_login_of_another_place_is_not_used(lab: GitLab, git_http: GitHttpServer, upstream: GitUpstream) -> None:
    for prefix in (f"http://127.0.0.1:{git_http.port + 1}", f"{git_http.base_url}/infr", "http://localhost"):
        mirrors = lab.mirrors(login(lab, prefix, git_http.password))
        with pytest.raises(RepositoryAuthError):
            mirrors.fetch(Repository(url=git_http.url(upstream.bare)), asked=None, deadline=soon())
    assert git_http.requests == []


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("protocol=https\nhost=h.example:8443\npath=org/repo.git\n", True),
        ("protocol=https\nhost=h.example:8443\npath=org/repo.git/info/lfs\n", True),
        ("protocol=http\nhost=h.example:8443\npath=org/repo.git\n", False),
        ("protocol=https\nhost=h.example\npath=org/repo.git\n", False),
        ("protocol=https\nhost=evil.example\npath=org/repo.git\n", False),
        ("protocol=https\nhost=h.example:8443\npath=org/repo.git2\n", False),
        ("protocol=https\nhost=h.example:8443\npath=org\n", False),
        ("protocol=https\nhost=h.example:8443\n", False),
        ("\nprotocol=https\nhost=h.example:8443\npath=org/repo.git\n", False),
        ("", False),
    ],
)
def test_the_helper_answers_for_exactly_one_place(tmp_path: Path, question: str, answers: bool) -> None:
    """A redirect, a submodule or a newline in a URL must not lead a token elsewhere (G09, G94)."""
    answer = tmp_path / "answer"
    answer.write_text("https\nh.example:8443\norg/repo.git\ngit\nt0ken\\ =x=\n", encoding="ascii")
    said = _ask(answer, "get", question)
    assert said == ("username=git\npassword=t0ken\\ =x=\n" if answers else "")
    assert _ask(answer, "store", question) == ""
    assert _ask(answer, "erase", question) == ""


def _ask(answer: Path, action: str, question: str) -> str:
    done = subprocess.run(
        ["/bin/sh", ANSWER, answer, action], input=question, capture_output=True, text=True, check=True, timeout=10
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.req("R4.6")
def test_no_secret_shows_while_a_fetch_runs_or_after(
    lab: GitLab, git_http: GitHttpServer, upstream: GitUpstream
) -> None:
    """Not on a command line, not in an environment, not in any file but the private one (G90, G91)."""
    git_http.delay_seconds = 0.5
    url = git_http.url(upstream.bare)
    mirrors = lab.mirrors(login(lab, git_http.base_url, git_http.password))
    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(mirrors.fetch, Repository(url=url), asked=None, deadline=soon())
        seen: set[str] = set()
        holding: list[Path] = []
        while not fetch.done():
            seen |= _what_children_show()
            holding += [path for path in _files_with(git_http.password, lab.state) if path not in holding]
        fetch.result()
    assert any("ls-remote" in text for text in seen)
    assert any("remote-http" in text for text in seen), "the helper that speaks http was looked at too"
    assert not any(git_http.password in text for text in seen)
    assert {path.name for path in holding} == {"answer"}
    assert _files_with(git_http.password, lab.state) == []


def _what_children_show() -> set[str]:
    """Command line and environment of each living descendant of this process."""
    shown: set[str] = set()
    pending = [os.getpid()]
    while pending:
        pid = pending.pop()
        with suppress(OSError):  # it ended while we looked
            for task in list(Path(f"/proc/{pid}/task").iterdir()):
                pending += [int(word) for word in (task / "children").read_text(encoding="ascii").split()]
            if pid != os.getpid():
                for name in ("cmdline", "environ"):
                    shown.add(Path(f"/proc/{pid}/{name}").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return shown


def _files_with(secret: str, folder: Path) -> list[Path]:
    found = []
    for place, _, names in os.walk(folder):  # unlike rglob() it does not mind what vanishes meanwhile
        for path in (Path(place, name) for name in names):
            with suppress(OSError):
                if secret.encode() in path.read_bytes():
                    found.append(path)
    return found


def test_a_server_that_is_down_is_unreachable(lab: GitLab) -> None:
    with pytest.raises(RepositoryUnreachableError, match=r"http://127\.0\.0\.1:9/infra"):
        lab.fetch("http://127.0.0.1:9/infra")


def test_a_repository_that_the_server_does_not_have_is_not_found(
    lab: GitLab, git_http: GitHttpServer, upstream: GitUpstream
) -> None:
    mirrors = lab.mirrors(login(lab, git_http.base_url, git_http.password))
    with pytest.raises(RepositoryNotFoundError, match="no such repository"):
        mirrors.fetch(Repository(url=f"{git_http.base_url}/none.git"), asked=None, deadline=soon())


@contextmanager
def answering(status: int, location: str = "") -> Iterator[tuple[str, list[str]]]:
    """A server that gives one answer to everything; yields its address and the Authorization headers it saw."""
    logins: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
            """Keep quiet."""

        def do_GET(self) -> None:
            logins.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            if location:
                self.send_header("Location", location + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", logins
        finally:
            server.shutdown()
            thread.join()


def test_a_redirect_is_not_followed_and_gets_no_login(lab: GitLab) -> None:
    """It may lead to an address inside the network, or to somebody who collects tokens (G10, G94)."""
    with answering(404) as (inside, visits), answering(302, inside) as (outside, _):
        mirrors = lab.mirrors(login(lab, outside, "t0ken-value"))
        with pytest.raises(RepositoryNotFoundError, match="has moved"):
            mirrors.fetch(Repository(url=f"{outside}/infra"), asked=None, deadline=soon())
        assert visits == []


@pytest.mark.parametrize(
    ("status", "error"),
    [(403, RepositoryAuthError), (429, RepositoryUnreachableError), (503, RepositoryUnreachableError)],
)
def test_what_a_forge_answers_has_its_class(lab: GitLab, status: int, error: type[GitError]) -> None:
    with answering(status) as (address, _), pytest.raises(error):
        lab.fetch(f"{address}/infra")


# --- ssh ----------------------------------------------------------------------------------------------------------


def ssh_login(lab: GitLab, server: GitSshServer, key: str, known_hosts: str = "") -> Credentials:
    hosts = known_hosts or server.known_hosts.read_text(encoding="utf-8")
    prefix = f"ssh://{server.user}@{server.host}:{server.port}"
    return lab.write_credentials(f'{prefix}: {{ssh_key: "file:key", known_hosts: hosts}}\n', key=key, hosts=hosts)


def test_a_key_opens_a_private_repository(lab: GitLab, git_ssh: GitSshServer, upstream: GitUpstream) -> None:
    """The key as people paste it: CRLF, and no newline at its end (G96)."""
    key = git_ssh.client_key.read_text(encoding="ascii").replace("\n", "\r\n").rstrip()
    mirrors = lab.mirrors(ssh_login(lab, git_ssh, key))
    repository = Repository(url=git_ssh.url(upstream.bare))
    revision = mirrors.fetch(repository, asked=None, deadline=soon())
    mirrors.checkout(repository, revision.sha, lab.tree(), keep="web", deadline=soon())
    assert text_files(lab.tree()) == {"a/f": "1\n"}
    assert list(lab.state.rglob("key")) == []


def test_a_key_that_the_server_does_not_know_is_refused(
    lab: GitLab, git_ssh: GitSshServer, upstream: GitUpstream, tmp_path: Path
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True, timeout=30)
    key = (tmp_path / "other").read_text(encoding="ascii")
    mirrors = lab.mirrors(ssh_login(lab, git_ssh, key))
    with pytest.raises(RepositoryAuthError, match="the login was refused") as refused:
        mirrors.fetch(Repository(url=git_ssh.url(upstream.bare)), asked=None, deadline=soon())
    assert key.splitlines()[1] not in str(refused.value)


def test_a_changed_host_key_is_never_accepted(lab: GitLab, git_ssh: GitSshServer, upstream: GitUpstream) -> None:
    key = git_ssh.client_key.read_text(encoding="ascii")
    other = git_ssh.client_key.with_name("client_key.pub").read_text(encoding="ascii").split()
    hosts = f"[{git_ssh.host}]:{git_ssh.port} {other[0]} {other[1]}\n"
    repository = Repository(url=git_ssh.url(upstream.bare))
    for known_hosts in (hosts, "# nothing\n"):
        mirrors = lab.mirrors(ssh_login(lab, git_ssh, key, known_hosts))
        with pytest.raises(RepositoryAuthError, match="host key is unknown or has changed"):
            mirrors.fetch(repository, asked=None, deadline=soon())


def test_ssh_uses_no_key_but_ours(
    lab: GitLab, git_ssh: GitSshServer, upstream: GitUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", git_ssh.ssh_command)
    lab.environ = dict(os.environ)
    with pytest.raises(RepositoryAuthError, match="no ssh key for"):
        lab.fetch(git_ssh.url(upstream.bare))


def test_a_missing_known_hosts_file_is_named(lab: GitLab, git_ssh: GitSshServer, upstream: GitUpstream) -> None:
    mirrors = lab.mirrors(ssh_login(lab, git_ssh, git_ssh.client_key.read_text(encoding="ascii")))
    (lab.root / "secrets" / "hosts").unlink()
    with pytest.raises(SpecError, match="known_hosts file"):
        mirrors.fetch(Repository(url=git_ssh.url(upstream.bare)), asked=None, deadline=soon())
