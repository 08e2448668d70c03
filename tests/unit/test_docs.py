"""Documentation that points into the code must point at something."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("shared", "workers", "services")
SUFFIXES = {".py", ".lua", ".html", ".css", ".js", ".sh"}


@cache
def code() -> str:
    """All code of the product, as one text."""
    files = (path for root in ROOTS for path in (ROOT / root).rglob("*") if path.suffix in SUFFIXES)
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def named(page: str) -> list[str]:
    """What a page sets in code type, outside of its blocks."""
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return sorted(set(re.findall(r"`([^`\n]+)`", text)))


def is_findable(name: str) -> bool:
    """Whether a path exists, or every identifier of a name stands in the code."""
    if "/" in name and re.fullmatch(r"[\w./-]+", name):
        places = [ROOT / name, *(ROOT / root / package / name for root, package in zip(ROOTS, PACKAGES, strict=True))]
        if any(place.exists() for place in places):
            return True
    words = re.findall(r"[A-Za-z_]{3,}", name)
    return all(re.search(rf"\b{re.escape(word)}\b", code()) for word in words)


PACKAGES = ("gitops_reconciler", "gitops_workers", "gitops_services")


@pytest.mark.parametrize("name", named("architecture.md"))
def test_every_name_of_the_architecture_is_findable_in_the_code(name: str) -> None:
    assert is_findable(name), name


def test_a_name_that_is_nowhere_would_be_noticed() -> None:
    assert not is_findable("NoSuchThingAnywhere")
    assert not is_findable("shared/no_such_file.py")


@pytest.mark.parametrize("name", [name for name in named("reliability.md") if name.startswith("tests/")])
def test_every_proof_of_the_reliability_page_is_there(name: str) -> None:
    assert (ROOT / name).is_file()


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_to_files_of_the_repository_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if not (path.parent / link).exists()]
    assert not missing
