"""Secrets that the program makes for itself."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gitops_reconciler.secrets import made_secret


def test_it_is_made_once_for_us_alone_and_then_kept(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "flower"
    made = made_secret(path)
    assert len(made) >= 43
    assert made_secret(path) == made == path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_two_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(made_secret, [tmp_path / "one"] * 32))) == 1
