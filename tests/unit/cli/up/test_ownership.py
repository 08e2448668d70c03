"""One `gitops up` per state folder."""

import json
import os
from pathlib import Path

import pytest

from gitops_reconciler.cli.up.ownership import owned
from gitops_reconciler.errors import StateFolderBusyError
from gitops_reconciler.layout import Layout


def test_a_second_owner_is_refused_with_the_pid_and_the_address_of_the_first(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with owned(layout) as owner:
        owner.introduce({"url": "http://127.0.0.1:8420"})
        with pytest.raises(StateFolderBusyError, match=rf"pid {os.getpid()}, http://127\.0\.0\.1:8420"), owned(layout):
            pass
        assert layout.up_file.exists()


def test_a_second_owner_is_refused_while_the_first_has_not_introduced_itself(tmp_path: Path) -> None:
    with owned(Layout(tmp_path)), pytest.raises(StateFolderBusyError, match="just begun"), owned(Layout(tmp_path)):
        pass


def test_an_owner_that_ended_leaves_the_folder_free_and_no_file(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for _ in range(2):
        with owned(layout) as owner:
            owner.introduce({"url": "http://127.0.0.1:1"})
            assert json.loads(layout.up_file.read_text())["pid"] == os.getpid()
        assert not layout.up_file.exists()


def test_what_a_killed_owner_left_does_not_keep_the_next_one_out(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.up_file.write_text('{"pid": 1, "url": "http://127.0.0.1:1"}')
    layout.up_lock.touch()
    with owned(layout) as owner:
        owner.introduce({"url": "http://127.0.0.1:2"})
        assert json.loads(layout.up_file.read_text())["url"] == "http://127.0.0.1:2"


def test_nobody_else_may_read_who_the_owner_is(tmp_path: Path) -> None:
    with owned(Layout(tmp_path)) as owner:
        owner.introduce({})
        assert owner.layout.up_file.stat().st_mode & 0o777 == 0o600
