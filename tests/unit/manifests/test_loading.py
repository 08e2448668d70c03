import os
from pathlib import Path

import pytest

from gitops_reconciler.errors import DocumentError
from gitops_reconciler.manifests.loading import MAX_FILES, check_size, is_document, is_scope_file, read_folder
from gitops_reconciler.manifests.parsing import MAX_BYTES
from gitops_reconciler.manifests.tree import read_tree


def write(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    return root


def test_only_documents_and_scope_files_are_read_whatever_their_case(tmp_path: Path) -> None:
    write(tmp_path, "RES.JSON", "a.Yaml", "sub/deep/b.yml", "sub/gitops.yaml", "converge.yaml")
    write(tmp_path, "converge.yaml.bak", "README.md", "a.txt", "noext", "x.yaml.swp")
    assert read_folder(tmp_path, prefix="gitops") == {
        "gitops/RES.JSON": b"RES.JSON",
        "gitops/a.Yaml": b"a.Yaml",
        "gitops/converge.yaml": b"converge.yaml",
        "gitops/sub/deep/b.yml": b"sub/deep/b.yml",
        "gitops/sub/gitops.yaml": b"sub/gitops.yaml",
    }
    assert "a.Yaml" in read_folder(tmp_path)


@pytest.mark.parametrize(
    ("path", "document", "scope"),
    [
        ("gitops.yaml", False, True),
        ("a/converge.yaml", False, True),
        ("a/gitops.yml", True, False),
        ("gitops.json", True, False),
        ("my-gitops.yaml", True, False),
        ("gitops.yaml/x.md", False, False),
        (".yaml", True, False),
    ],
)
def test_one_name_is_a_scope_file_and_every_other_a_document(path: str, document: bool, scope: bool) -> None:
    assert is_document(path) is document
    assert is_scope_file(path) is scope


@pytest.mark.req("R1.2")
def test_a_missing_folder_and_a_plain_file_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, "file.yaml")
    with pytest.raises(DocumentError) as missing:
        read_folder(tmp_path / "nowhere")
    assert str(missing.value) == f"stat {tmp_path}/nowhere: no such file or directory"
    with pytest.raises(DocumentError) as plain:
        read_folder(tmp_path / "file.yaml")
    assert str(plain.value) == f"{tmp_path}/file.yaml is not a directory"
    with pytest.raises(DocumentError, match=r"^stat "):
        read_folder(Path("nul\0"))


@pytest.mark.req("R1.15")
def test_gits_own_folder_and_symlinks_are_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", "secret.yaml")
    root = write(tmp_path / "root", "a.yaml", ".git/config.yaml", "sub/.git/x.json", ".github/workflows/x.yml")
    (root / "file.yaml").symlink_to(outside / "secret.yaml")
    (root / "folder").symlink_to(outside)
    (root / "loop").symlink_to(root)
    (root / "inner.yaml").symlink_to(root / "a.yaml")
    assert sorted(read_folder(root)) == [".github/workflows/x.yml", "a.yaml"]


@pytest.mark.req("R1.15")
def test_a_workflow_inside_the_tree_is_an_error_that_says_why() -> None:
    tree = read_tree({".github/workflows/x.yml": b"on: [push]"})
    assert "every .json, .yaml and .yml file of the tree is a document" in tree.problems[0].message


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    assert read_folder(tmp_path) == {}


def test_a_file_that_is_too_large_is_cut_and_then_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_bytes(b"#" * (MAX_BYTES * 2))
    files = read_folder(tmp_path)
    assert len(files["big.yaml"]) == MAX_BYTES + 1
    assert str(read_tree(files).problems[0]).startswith("big.yaml:1:1: the file is too large")


def test_a_file_name_that_is_not_utf8_is_a_problem_of_that_file_alone(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("type: resource\nkind: terraform\nname: good\n")
    try:
        (tmp_path / os.fsdecode(b"b\xff.yaml")).write_text("type: resource\nkind: terraform\nname: bad\n")
    except OSError:
        pytest.skip("this file system takes no such names")
    tree = read_tree(read_folder(tmp_path))
    assert [str(problem) for problem in tree.problems] == ["b\\udcff.yaml:1:1: the file's name is not UTF-8"]
    assert tree.resource("good") is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_stops_the_reading_and_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    (tmp_path / "a.yaml").chmod(0)
    with pytest.raises(DocumentError, match=r"^read .*/a\.yaml: permission denied$"):
        read_folder(tmp_path)


def test_a_tree_that_is_too_large_as_a_whole_is_refused() -> None:
    check_size("gitops", count=MAX_FILES, size=1)
    with pytest.raises(DocumentError, match=r"^gitops is too large \(at most 100000 documents and 256 MiB\)$"):
        check_size("gitops", count=MAX_FILES + 1, size=1)
    with pytest.raises(DocumentError, match=r"^gitops is too large"):
        check_size("gitops", count=1, size=(256 << 20) + 1)
