"""Which server is asked, and with which token."""

import json
import os
from pathlib import Path

import pytest

from gitops_reconciler.cli.client import find_server
from gitops_reconciler.cli.exits import Exit, ServerUnreachableError, exit_of_error
from gitops_reconciler.errors import (
    DocumentError,
    ReconcileError,
    SettingsError,
    StoreUnavailableError,
    UnknownTargetError,
)
from gitops_reconciler.settings import Settings, load_settings

NO_PROCESS = 2**22 + 1  # above the largest pid


@pytest.fixture
def settings(state_dir: Path) -> Settings:
    return load_settings()


def introduce(settings: Settings, *, pid: int, token: str | None = None) -> None:
    """Leave an up.json as a running `gitops up` does."""
    token_file = settings.layout.root / "token"
    if token is not None:
        token_file.write_text(f"{token}\n")
    facts = {"pid": pid, "url": "http://127.0.0.1:8420", "token_file": str(token_file) if token else None}
    settings.layout.up_file.write_text(json.dumps(facts))


def test_the_running_up_is_asked_when_no_server_is_named(settings: Settings) -> None:
    introduce(settings, pid=os.getpid(), token="gor_own")
    found = find_server(settings, server=None, token_file=None)
    assert (found.url, found.token) == ("http://127.0.0.1:8420", "gor_own")


def test_an_up_that_is_gone_is_not_asked(settings: Settings) -> None:
    introduce(settings, pid=NO_PROCESS)
    with pytest.raises(ServerUnreachableError, match=r"no `gitops up` runs on .*GITOPS_SERVER"):
        find_server(settings, server=None, token_file=None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}'])
def test_a_damaged_up_file_is_like_none(settings: Settings, text: str) -> None:
    settings.layout.up_file.write_text(text)
    with pytest.raises(ServerUnreachableError):
        find_server(settings, server=None, token_file=None)


def test_the_option_goes_before_the_setting_and_the_setting_before_the_running_up(settings: Settings) -> None:
    introduce(settings, pid=os.getpid())
    configured = settings.model_copy(update={"server": "https://gitops.example.org/"})
    assert find_server(configured, server=None, token_file=None).url == "https://gitops.example.org"
    assert find_server(configured, server="http://other:1", token_file=None).url == "http://other:1"


def test_the_token_of_the_running_up_is_never_sent_to_another_server(settings: Settings) -> None:
    introduce(settings, pid=os.getpid(), token="gor_own")
    assert find_server(settings, server="http://127.0.0.1:9", token_file=None).token is None


def test_a_token_file_is_read_without_its_newline(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("gor_mine\n")
    assert find_server(settings, server="http://x", token_file=file).token == "gor_mine"


def test_a_token_file_that_is_missing_is_named(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere can't be read: No such file"):
        find_server(settings, server="http://x", token_file=tmp_path / "nowhere")


@pytest.mark.parametrize("address", ["localhost:8420", "ftp://x", "http://", "http://x:99999", "http://x:port"])
def test_an_address_that_is_none_is_refused(settings: Settings, address: str) -> None:
    with pytest.raises(SettingsError, match="is no server address"):
        find_server(settings, server=address, token_file=None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerUnreachableError("x"), Exit.UNREACHABLE),
        (StoreUnavailableError("x"), Exit.UNREACHABLE),
        (UnknownTargetError("x"), Exit.INVALID),
        (DocumentError("x"), Exit.INVALID),
        (SettingsError("x"), Exit.INVALID),
        (ReconcileError("x"), Exit.FAILED),
    ],
)
def test_exit_codes_follow_from_what_went_wrong(error: ReconcileError, code: Exit) -> None:
    assert exit_of_error(error) is code
