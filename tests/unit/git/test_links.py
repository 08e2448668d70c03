"""Symlinks that leave the tree, directly or over others (hazard G17)."""

import pytest

from gitops_reconciler.git.links import leaves_tree


@pytest.mark.parametrize(
    ("links", "path", "leaves"),
    [
        ({"a/c.yml": "/etc/passwd"}, "a/c.yml", True),
        ({"root": "/"}, "root", True),
        ({"x": ".."}, "x", True),
        ({"a/x": ".."}, "a/x", False),
        ({"a/x": "../../y"}, "a/x", True),
        ({"a/x": "../b/y"}, "a/x", False),
        ({"x": "a/./b//c"}, "x", False),
        ({"x": "."}, "x", False),
        ({"x": "y/../.."}, "x", True),
        ({"x": "y/../..", "y": "d/e/f"}, "x", False),
        ({"x": "y", "y": "/etc"}, "x", True),
        ({"x": "y/z", "y": "a/b", "a/b/z": "../../../out"}, "x", True),
        ({"x": "y", "y": "x"}, "x", False),
        ({"x": "x/x"}, "x", False),
    ],
)
def test_a_link_is_followed_over_all_others(links: dict[str, str], path: str, leaves: bool) -> None:
    assert leaves_tree(path, links) is leaves
