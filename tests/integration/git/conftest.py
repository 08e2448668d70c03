"""Fixtures of the tests over real git."""

from pathlib import Path

import pytest

from tests.support.git_lab import GitLab


@pytest.fixture
def lab(tmp_path: Path, git_root: Path) -> GitLab:
    """Mirrors and checkouts of this test; only this test's own upstreams are permitted local repositories."""
    return GitLab(root=tmp_path, allow_local=git_root)
