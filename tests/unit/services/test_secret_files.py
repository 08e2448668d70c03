"""Secret files: what makes an endpoint exist."""

import os
from pathlib import Path

import pytest

from gitops_services.receiver.secret_files import SecretFiles


def write(path: Path, content: bytes, at: int) -> None:
    path.write_bytes(content)
    os.utime(path, ns=(at, at))


def values(files: SecretFiles, *endpoint: str) -> tuple[bytes, ...] | None:
    found = files.of(*endpoint)
    return None if found is None else found.values


def test_each_line_is_a_secret_and_a_changed_file_is_read_again(tmp_path: Path) -> None:
    files = SecretFiles(tmp_path)
    assert values(files, "github") is None
    write(tmp_path / "github", b"one\ntwo\r\n\n three ", 1)
    assert values(files, "github") == (b"one", b"two", b" three ")
    write(tmp_path / "github", b"new\n", 2)
    assert values(files, "github") == (b"new",)
    (tmp_path / "github").unlink()
    assert values(files, "github") is None


def test_an_endpoint_of_its_own_has_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "github.shop").write_bytes(b"x\n")
    files = SecretFiles(tmp_path)
    assert values(files, "github", "shop") == (b"x",)
    assert values(files, "github") is None
    assert files.any_of(["github"])
    assert not files.any_of(["gitlab"])


@pytest.mark.parametrize("endpoint_id", ["../github", ".", "..", "a/b", "a.b", "a\x00", "x" * 65, "é"])
def test_an_id_can_not_name_another_file(tmp_path: Path, endpoint_id: str) -> None:
    (tmp_path / "github").write_bytes(b"x\n")
    (tmp_path / "github.a.b").write_bytes(b"x\n")
    assert values(SecretFiles(tmp_path), "github", endpoint_id) is None


@pytest.mark.parametrize("content", [b"", b"\n \n", b"x" * 70_000])
def test_a_file_without_a_usable_secret_makes_no_endpoint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "github").write_bytes(content)
    assert values(SecretFiles(tmp_path), "github") is None
    assert not SecretFiles(tmp_path).any_of(["github"])


def test_files_of_other_names_are_no_endpoints(tmp_path: Path) -> None:
    (tmp_path / "README").write_bytes(b"x\n")
    (tmp_path / "github").mkdir()
    assert not SecretFiles(tmp_path).any_of(["github", "gitlab"])
    assert not SecretFiles(tmp_path / "missing").any_of(["github"])
