"""Tools that a test needs: found, or the test is skipped, or in CI failed.

A skip for a missing tool has one wording, so that the end of the run can say what to install.
"""

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

_REASON = re.compile(r"needs (?P<tool>\S+), which is not here; to install it: (?P<how>.*)")
_DAEMON_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def require(tool: str, how: str) -> Path:
    """The path of a tool; without it the test is skipped with how to install it, and fails in CI."""
    return find_tool(tool) or missing(tool, how)


def find_tool(tool: str) -> Path | None:
    """Look a tool up beside this Python, on PATH, and in the folders of daemons."""
    folders = [str(Path(sys.executable).parent), *os.get_exec_path(), *_DAEMON_FOLDERS]
    found = shutil.which(tool, path=os.pathsep.join(folders))
    return Path(found) if found else None


def missing(tool: str, how: str) -> NoReturn:
    """Skip the test for want of a tool, or fail it in CI."""
    reason = f"needs {tool}, which is not here; to install it: {how}"
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def in_ci() -> bool:
    """Whether this run must not skip."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def summarize_missing(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """One line for each tool that skipped tests: its name, how many, how to install it."""
    texts = (report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple))
    found = Counter((match["tool"], match["how"]) for text in texts if (match := _REASON.search(text)))
    return [f"{tool}: {count} skipped; to install it: {how}" for (tool, how), count in sorted(found.items())]
