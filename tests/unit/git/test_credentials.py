"""The credentials file: which login belongs to which address, and that a wrong file says why, but no secret."""

from pathlib import Path

import pytest

from gitops_reconciler.errors import RepositoryAuthError, SecretError, SpecError
from gitops_reconciler.git.credentials import (
    FileCredentials,
    KeyLogin,
    NoCredentials,
    TokenLogin,
    lent_access,
    load_credentials,
)
from gitops_reconciler.git.urls import parse_remote
from gitops_reconciler.redaction import Redactor
from gitops_reconciler.secrets import ReferencedSecrets

TOKENS = {f"GITOPS_SECRET_{name}": f"t0ken-{name.lower()}" for name in ("HOST", "ORG", "REPO", "PORT", "NAS")}
FILE = """
https://h.example: {token: "env:GITOPS_SECRET_HOST"}
https://h.example/org: {username: x-access-token, token: "env:GITOPS_SECRET_ORG"}
https://h.example/org/repo.git: {token: "env:GITOPS_SECRET_REPO"}
https://h.example:8443/: {token: "env:GITOPS_SECRET_PORT"}
http://nas.lan:3000: {}
"""


def credentials(folder: Path, text: str, mode: int = 0o600) -> FileCredentials:
    path = folder / "credentials.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return FileCredentials(path=path, secrets=ReferencedSecrets(folder=folder, environ=TOKENS))


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("https://h.example/other/repo", "t0ken-host"),
        ("https://h.example/org/x", "t0ken-org"),
        ("https://h.example/org2/x", "t0ken-host"),
        ("https://h.example/org/repo", "t0ken-repo"),
        ("https://h.example/org/repo.git", "t0ken-repo"),
        ("https://h.example:443/org/x", "t0ken-org"),
        ("https://h.example:8443/org/x", "t0ken-port"),
        ("https://h.example:9443/org/x", None),
        ("https://sub.h.example/org/x", None),
        ("https://h.example.evil.example/org/x", None),
        ("http://nas.lan:3000/org/x", None),
    ],
)
def test_the_longest_prefix_of_exactly_this_place_wins(tmp_path: Path, url: str, password: str | None) -> None:
    login = credentials(tmp_path, FILE).login_for(parse_remote(url))
    assert (login.password if isinstance(login, TokenLogin) else None) == password


def test_plain_http_is_permitted_only_for_places_in_the_file(tmp_path: Path) -> None:
    known = credentials(tmp_path, FILE)
    assert known.permits_http(parse_remote("http://nas.lan:3000/a/b"))
    assert not known.permits_http(parse_remote("http://nas.lan/a/b"))
    assert not NoCredentials().permits_http(parse_remote("http://nas.lan:3000/a/b"))


def test_an_ssh_prefix_fits_both_ways_of_writing_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(
        "-----BEGIN RSA PRIVATE KEY----- AAAA -----END RSA PRIVATE KEY-----", encoding="ascii"
    )
    known = credentials(tmp_path, "git@h.example: {ssh_key: 'file:key', known_hosts: hosts}\n")
    for url in ("git@h.example:org/r.git", "ssh://git@h.example/org/r", "ssh://git@h.example:22/org/r"):
        login = known.login_for(parse_remote(url))
        assert isinstance(login, KeyLogin)
        assert login.private_key.endswith("-----END RSA PRIVATE KEY-----\n")
        assert login.known_hosts == tmp_path / "hosts"
        assert "AAAA" not in repr(login)
    for url in ("other@h.example:org/r", "ssh://git@h.example:2222/org/r", "https://h.example/org/r"):
        assert known.login_for(parse_remote(url)) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("https://h.example: {token: t0ken-plain}", "must be a secret reference"),
        ("https://h.example: {ssh_key: t0ken-plain}", "must be a secret reference"),
        ("https://h.example: {tokn: t0ken-plain}", "tokn"),
        ("https://h.example: {token: 'env:GITOPS_SECRET_ORG', ssh_key: 'file:k'}", "both token and ssh_key"),
        ("https://h.example: {known_hosts: x}", "without ssh_key"),
        ("https://jane:t0ken-plain@h.example: {}", "must not contain a password"),
        ("ext::sh: {}", "transport helper"),
        ("- t0ken-plain", "must map URL prefixes"),
        ("a: [t0ken-plain", "no valid YAML"),
    ],
)
def test_a_wrong_file_is_explained_without_any_value(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(SpecError, match=why) as refused:
        credentials(tmp_path, text).login_for(parse_remote("https://h.example/r"))
    assert "t0ken" not in str(refused.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="chmod 600"):
        credentials(tmp_path, FILE, mode=0o644).login_for(parse_remote("https://h.example/r"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    known = load_credentials(tmp_path / "none.yaml", ReferencedSecrets(folder=None, environ={}))
    with pytest.raises(SpecError, match=r"none\.yaml"):
        known.login_for(parse_remote("https://h.example/r"))
    assert (
        load_credentials(None, ReferencedSecrets(folder=None, environ={})).login_for(parse_remote("https://h/r"))
        is None
    )


def test_a_token_of_two_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("t0ken-a\nhost=evil.example\n", encoding="ascii")
    with pytest.raises(SecretError, match="file:two"):
        credentials(tmp_path, "https://h.example: {token: 'file:two'}").login_for(parse_remote("https://h.example/r"))


def test_a_lent_token_lies_only_in_a_private_file_and_only_meanwhile(tmp_path: Path) -> None:
    redactor = Redactor()
    folder = tmp_path / "it's a folder" / "login"
    remote = parse_remote("https://h.example:8443/org/repo.git")
    login = TokenLogin(username="jane", password="t0ken-value")
    with lent_access(remote, login, folder, redactor) as access:
        answer = folder / "answer"
        assert answer.read_text(encoding="utf-8").splitlines() == [
            "https", "h.example:8443", "org/repo.git", "jane", "t0ken-value",
        ]  # fmt: skip
        assert answer.stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
        assert access.protocol == "https"
        assert "t0ken" not in f"{access.config}{access.env}"
    assert not folder.exists()
    assert redactor.text("x t0ken-value y") == "x *** y"


def test_what_a_killed_process_lent_is_removed_before_the_next_use(tmp_path: Path) -> None:
    (tmp_path / "login").mkdir()
    (tmp_path / "login" / "answer").write_text("t0ken-old", encoding="ascii")
    login = TokenLogin(username="jane", password="t0ken-value")
    with lent_access(parse_remote("https://h.example/r"), login, tmp_path / "login", Redactor()):
        assert "t0ken-old" not in (tmp_path / "login" / "answer").read_text(encoding="utf-8")


def test_a_key_goes_to_ssh_with_strict_host_checking(tmp_path: Path) -> None:
    login = KeyLogin(private_key="the key\n")
    with lent_access(parse_remote("git@github.com:a/b"), login, tmp_path / "100% login", Redactor()) as access:
        command = access.env["GIT_SSH_COMMAND"]
        assert "StrictHostKeyChecking=yes" in command
        assert "BatchMode=yes" in command
        assert "100%% login/key" in command
        assert "known_hosts" in command
        assert access.protocol == "ssh"
        key = tmp_path / "100% login" / "key"
        assert key.stat().st_mode & 0o777 == 0o600


def test_ssh_without_a_key_is_refused_before_the_network(tmp_path: Path) -> None:
    with (
        pytest.raises(RepositoryAuthError, match="add an entry with ssh_key"),
        lent_access(parse_remote("git@h.example:a/b"), None, tmp_path / "login", Redactor()),
    ):
        pass


def test_a_login_of_the_wrong_sort_is_refused(tmp_path: Path) -> None:
    token, key = TokenLogin(username="jane", password="t0ken-value"), KeyLogin(private_key="k")
    with (
        pytest.raises(RepositoryAuthError, match="needs an ssh_key"),
        lent_access(parse_remote("git@h.example:a/b"), token, tmp_path / "login", Redactor()),
    ):
        pass
    with (
        pytest.raises(RepositoryAuthError, match="needs a token"),
        lent_access(parse_remote("https://h.example/b"), key, tmp_path / "login", Redactor()),
    ):
        pass
    assert not (tmp_path / "login").exists()
