"""The state folder: where things lie, and that no two targets ever meet there."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gitops_reconciler.layout import Layout
from gitops_reconciler.models import NAME_PATTERN

LAYOUT = Layout(Path("/state"))
WORDS = st.sampled_from(["a", "b", "default", "json", "lock", "run", "a.json", "a.lock", "a.run", "a.json.json", "a_b"])
NAMES = WORDS | st.from_regex(NAME_PATTERN, fullmatch=True).filter(lambda name: not name.endswith("\n"))
TARGETS = NAMES | st.tuples(NAMES, NAMES).map("/".join) | NAMES.map(lambda name: f"source:{name}")


def paths_of(target: str) -> list[Path]:
    kinds = ("terraform", "source")
    of_kinds = [path for kind in kinds for path in (LAYOUT.lock(kind, target), LAYOUT.leftover(kind, target))]
    return [LAYOUT.tree(target), LAYOUT.home(target), LAYOUT.record(target), *of_kinds]


def meet(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


@given(TARGETS, TARGETS)
def test_no_two_targets_share_a_path_or_lie_one_in_the_other(one: str, other: str) -> None:
    assume(one.removeprefix("default/") != other.removeprefix("default/"))
    for mine in paths_of(one):
        assert not [str(path) for path in paths_of(other) if meet(mine, path)], str(mine)


@given(TARGETS)
def test_the_paths_of_one_target_are_apart(target: str) -> None:
    assert not [pair for pair in combinations(paths_of(target), 2) if meet(*pair)]


@given(TARGETS)
def test_all_paths_lie_in_their_part_of_the_state_folder(target: str) -> None:
    parts = [path.relative_to("/state").parts[0] for path in paths_of(target)]
    assert parts == ["git", "targets", "targets", "locks", "locks", "locks", "locks"]


@pytest.mark.parametrize("target", ["web", "default/web"])
def test_a_target_of_the_default_source_is_the_local_one_of_its_name(target: str) -> None:
    assert [str(path.relative_to("/state")) for path in paths_of(target)[:5]] == [
        "git/trees/web",
        "targets/web",
        "targets/web.json",
        "locks/terraform/web.lock",
        "locks/terraform/web.run",
    ]


def test_a_target_of_another_source_lies_below_a_folder_that_no_target_can_be() -> None:
    assert LAYOUT.tree("infra/web") == Path("/state/git/trees/_infra/web")
    assert LAYOUT.tree("default/infra") == Path("/state/git/trees/infra")


def test_a_target_that_is_named_as_a_record_has_a_home_of_its_own() -> None:
    assert LAYOUT.record("x") == Path("/state/targets/x.json")
    assert LAYOUT.home("x.json") == Path("/state/targets/x.json_")
