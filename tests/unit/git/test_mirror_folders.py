"""What a fetch covers, by counters and not by clocks, and where a mirror lies."""

from pathlib import Path

from gitops_reconciler.git.mirror_folders import Found, MirrorFolder
from gitops_reconciler.git.urls import parse_remote

SHA = "a" * 40


def found(epoch: str = "", asked: int = -1) -> Found:
    return Found(tip=SHA, sha=SHA, subject="first", epoch=epoch, asked=asked)


def test_a_fetch_covers_all_asks_before_it_began_and_no_later_one() -> None:
    assert found("e1", 7).covers(("e1", 7))
    assert found("e1", 7).covers(("e1", 3))
    assert not found("e1", 7).covers(("e1", 8))


def test_counters_of_another_epoch_say_nothing() -> None:
    assert not found("e1", 7).covers(("e2", 1))


def test_who_asks_for_a_look_gets_one() -> None:
    assert not found("e1", 7).covers(None)
    assert not found().covers(("", 0))


def test_the_state_lasts_and_keeps_refs_apart(tmp_path: Path) -> None:
    folder = MirrorFolder.of(tmp_path, parse_remote("https://h.example/r"))
    folder.git_dir.mkdir()
    folder.remember("refs/heads/main", found("e1", 7))
    folder.remember("refs/heads/dev", found("e1", 2))
    born = folder.born
    again = MirrorFolder.of(tmp_path, parse_remote("https://h.example/r"))
    assert again.found("refs/heads/main") == found("e1", 7)
    assert again.found("refs/heads/dev") == found("e1", 2)
    assert again.found("refs/heads/none") is None
    assert again.born == born


def test_a_damaged_state_file_only_costs_a_fetch(tmp_path: Path) -> None:
    folder = MirrorFolder.of(tmp_path, parse_remote("https://h.example/r"))
    folder.git_dir.mkdir()
    for content in (b"", b"[]", b"\xff", b'{"refs": {"refs/heads/main": {"odd": 1}}}'):
        (folder.git_dir / "gitops-state.json").write_bytes(content)
        assert folder.found("refs/heads/main") is None


def test_every_address_has_a_folder_of_its_own_that_people_recognise(tmp_path: Path) -> None:
    urls = (
        "https://h.example/org/infra", "https://h.example:8443/org/infra", "https://h.example/org/infra2",
        "ssh://git@h.example/org/infra", "git@h.example:org/infra", "https://h.example/Org/infra",
    )  # fmt: skip
    names = [MirrorFolder.of(tmp_path, parse_remote(url)).name for url in urls]
    assert len(set(names)) == len(urls)
    assert all(name.startswith("h.example-org-infra") for name in names)
    assert MirrorFolder.of(tmp_path, parse_remote("https://h.example/org/infra/")).name == names[0]
