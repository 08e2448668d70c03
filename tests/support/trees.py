"""Trees of documents written down in tests."""

from textwrap import dedent

from gitops_reconciler.manifests.tree import Tree, read_tree


def tree_of(files: dict[str, str], *, source: str = "default") -> Tree:
    """Read files that are given as text."""
    return read_tree({path: dedent(text).encode() for path, text in files.items()}, source=source)


def problems_of(files: dict[str, str]) -> list[str]:
    """Return the lines that people read."""
    return [str(problem) for problem in tree_of(files).problems]


def problems_in(text: str, path: str = "gitops/x.yaml") -> list[str]:
    """Return what is wrong with one document, without its path."""
    return [line.removeprefix(f"{path}:") for line in problems_of({path: text})]


def resource(name: str = "x", kind: str = "terraform", more: str = "") -> str:
    """Return a resource document."""
    return f"type: resource\nkind: {kind}\nname: {name}\n{dedent(more)}"
