"""Repository addresses: what is refused, what is the same repository, and that no credential survives."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_reconciler.errors import SpecError
from gitops_reconciler.git.urls import (
    check_url,
    parse_remote,
    repository_key,
    repository_keys,
    shown,
    without_credentials,
)

CASES = Path(__file__).parents[4] / "shared" / "payloads" / "url_match_cases.tsv"


def test_the_recorded_pairs_match_as_they_should() -> None:
    if not CASES.is_file():
        pytest.skip("the recorded payloads do not lie beside this checkout (../shared/payloads)")
    with CASES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    wrong = []
    for row in rows:
        target = row["target_url"].replace("\\\\", "\\")
        match = bool(repository_keys(row["payload_url"]) & repository_keys(target))
        if match != row["expected"].startswith("match"):
            wrong.append((row["payload_url"], row["target_url"], row["expected"], row["source"]))
    assert len(rows) >= 30
    assert wrong == []


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://GitHub.com/Acme/Infra.git", "github.com/acme/infra"),
        ("git@github.com:acme/infra.git", "github.com/acme/infra"),
        ("ssh://git@ssh.github.com:443/acme/infra", "github.com/acme/infra"),
        ("ssh://git@altssh.bitbucket.org:443/acme/infra.git", "bitbucket.org/acme/infra"),
        ("https://user:tok@gitlab.com/a/b/c/infra/", "gitlab.com/a/b/c/infra"),
        ("https://dev.azure.com/Org/My%20Project/_git/infra", "dev.azure.com/org/my project/infra"),
        ("git@ssh.dev.azure.com:v3/Org/My%20Project/infra", "dev.azure.com/org/my project/infra"),
        ("https://org.visualstudio.com/DefaultCollection/Proj/_git/infra", "dev.azure.com/org/proj/infra"),
        ("https://org.visualstudio.com/_git/infra", "dev.azure.com/org/infra/infra"),
        ("https://git.example.com/scm/ops/infra.git", "git.example.com/ops/infra"),
        ("https://xn--bcher-kva.example/a/b", "xn--bcher-kva.example/a/b"),
        ("https://bücher.example./a/b", "xn--bcher-kva.example/a/b"),
    ],
)
def test_one_repository_has_one_key_whatever_way_it_is_written(url: str, key: str) -> None:
    assert repository_key(url) == key
    assert key in repository_keys(url)


@given(
    st.one_of(
        st.text(max_size=80),
        st.from_regex(r"\A(https|ssh|git|file)://[a-z@:.\[\]%#?/\\-]{0,40}\Z"),
        st.from_regex(r"\Ahttps://(dev\.azure\.com|x\.visualstudio\.com)(/(_git|v3|DefaultCollection|a|\.git)){0,5}\Z"),
        st.from_regex(r"\A[a-z@:.\[\]/-]{0,40}\Z"),
    )
)
def test_no_address_of_a_payload_can_break_the_matching(url: str) -> None:
    """Odd addresses crashed a well-known receiver (argo-cd#23024)."""
    assert all(isinstance(key, str) for key in repository_keys(url))


@pytest.mark.req("R4.6")
@given(
    st.from_regex(r"\A[a-zA-Z0-9._%:-]{0,20}s3cret[a-zA-Z0-9._%:-]{0,20}\Z"),
    st.from_regex(r"\A[a-z0-9.:\[\]-]{1,20}/[a-z0-9/.%-]{0,20}\Z"),
)
def test_no_user_info_of_any_address_is_ever_shown(user_info: str, rest: str) -> None:
    url = f"https://{user_info}@{rest}"
    assert "s3cret" not in shown(url)
    assert "s3cret" not in without_credentials(url)
    assert not any("s3cret" in key for key in repository_keys(url))


def test_dots_are_kept_and_only_one_git_suffix_is_cut() -> None:
    assert repository_key("https://h.example/org/a..d") == "h.example/org/a..d"
    assert repository_key("https://h.example/org/a.git.git") == "h.example/org/a.git"


def test_the_key_of_a_local_repository_is_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert repository_key(str(tmp_path / "link")) == str(tmp_path / "real")
    assert repository_keys((tmp_path / "link").as_uri()) == {str(tmp_path / "real")}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "empty"),
        ("--upload-pack=touch PWN;git-upload-pack", "begins with '-'"),
        ("-oProxyCommand=x:repo", "begins with '-'"),
        ("ext::sh -c touch% PWN", "transport helper"),
        ("foo::bar", "transport helper"),
        ("ftp://h.example/r", "unknown scheme"),
        ("git://h.example/r", "git://"),
        ("http://h.example/r", "use https"),
        ("ssh://-oProxyCommand=touch/x", "host name"),
        ("ssh://-x@h.example/r", "user name"),
        ("-x@h.example:r", "begins with '-'"),
        ("a@-x:r", "host name"),
        ("git@h.example:-r", "begins with '-'"),
        ("https://h.example%0ahost=evil/x", "host name"),
        ("https://h.example/x%0ahost=evil", "control character"),
        ("https://h.example/x\nhost=evil", "control character"),
        ("https://u%0a:p@h.example/x", "control character"),
        ("https://github.com\\@evil.example/org/repo", "backslash"),
        ("C:\\repos\\x", "backslash"),
        ("C:/repos/x", "Windows"),
        ("https://a@b@h.example/x", "more than one '@'"),
        ("https://h.example", "no path"),
        ("https://h.example/a/../b", "'..'"),
        ("https://h.example/a/%2e%2e/b", "'..'"),
        ("https://h.example:port/a", "host and port"),
        ("https://[::zz]/a", "host and port"),
        ("https://h.example/a?private_token=S3CRET", "query"),
        ("https://h.example/a#x", "query or fragment"),
        ("repos/x", "no absolute address"),
        ("file://other-host/x", "absolute path"),
        ("https://" + "h" * 3000 + "/x", "longer than"),
    ],
)
def test_an_odd_address_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(SpecError, match=why) as refused:
        check_url(url, None)
    assert "S3CRET" not in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.req("R4.6")
@pytest.mark.parametrize("url", ["https://jane:t0ken-of-jane@h.example/r", "https://t0ken-of-jane@h.example/r"])
def test_credentials_in_an_address_are_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(SpecError, match="GITOPS_GIT_CREDENTIALS_FILE") as refused:
        check_url(url, None)
    assert "t0ken" not in str(refused.value)
    assert without_credentials(url) == "https://h.example/r"
    assert "t0ken" not in shown(url)
    assert "t0ken" not in repr(parse_remote("https://jane:t0ken-of-jane@h.example/r"))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (" https://github.com/Acme/Infra.git ", "https://github.com/Acme/Infra.git"),
        ("https://dev.azure.com/Org/My Project/_git/r", "https://dev.azure.com/Org/My%20Project/_git/r"),
        ("git@github.com:acme/infra.git", "git@github.com:acme/infra.git"),
        ("git+ssh://git@h.example:2222/r", "ssh://git@h.example:2222/r"),
        ("ssh://h.example/r", "ssh://h.example/r"),
        ("git@[2001:db8::1]:r", "git@[2001:db8::1]:r"),
        ("http://127.0.0.1:3000/r", "http://127.0.0.1:3000/r"),
        ("http://localhost/r", "http://localhost/r"),
    ],
)
def test_a_good_address_is_what_git_gets(url: str, address: str) -> None:
    assert check_url(url, None).address == address


def test_plain_http_is_used_only_where_an_operator_accepted_it() -> None:
    assert check_url("http://nas.lan:3000/r", None, allow_http=True).address == "http://nas.lan:3000/r"


def test_local_repositories_need_a_permitted_folder(tmp_path: Path) -> None:
    inside = tmp_path / "allowed" / "r.git"
    inside.mkdir(parents=True)
    (tmp_path / "secret.git").mkdir()
    (tmp_path / "allowed" / "link.git").symlink_to(tmp_path / "secret.git")
    assert check_url(str(inside), tmp_path / "allowed").address == str(inside)
    assert check_url(inside.as_uri(), tmp_path / "allowed").is_local
    with pytest.raises(SpecError, match="set GITOPS_GIT_ALLOW_LOCAL"):
        check_url(str(inside), None)
    for outside in (tmp_path / "secret.git", tmp_path / "allowed" / "link.git", inside / ".." / ".." / "secret.git"):
        with pytest.raises(SpecError, match="does not lie below GITOPS_GIT_ALLOW_LOCAL"):
            check_url(str(outside), tmp_path / "allowed")
