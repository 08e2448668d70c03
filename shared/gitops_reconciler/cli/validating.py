"""`gitops validate`: every problem of a tree at once, as compilers print them; needs no server and changes nothing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gitops_reconciler.cli.exits import Exit
from gitops_reconciler.cli.output import Screen, note
from gitops_reconciler.cli.parsing import Parser

_EXAMPLES = """
gitops validate                 # gitops/ of the current repository
gitops validate infra/gitops    # another folder
"""


def configure(parser: Parser) -> None:
    """Say what `validate` takes."""
    parser.describe(
        "Checks every document of a tree and prints all problems as file:line:column: message. Needs no server and "
        "changes nothing."
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR", help="folder of documents (default: gitops/ of this repository)"
    )
    parser.teach(_EXAMPLES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print problems, warnings and a summary."""
    from gitops_reconciler.layout import DEFAULT_SOURCE
    from gitops_reconciler.local import find_folder
    from gitops_reconciler.manifests.loading import files_below, read_folder
    from gitops_reconciler.manifests.tree import read_tree

    given: Path | None = arguments.folder
    folder = find_folder(given, Path.cwd())
    files = read_folder(folder.path, prefix=folder.prefix)
    tree = read_tree(files, source=DEFAULT_SOURCE, repository_files=files_below(folder.root))
    shown_as = str(given) if given else os.path.relpath(folder.path)
    for warning in tree.warnings:
        note(f"warning: {replace(warning, path=_path(warning.path, folder.prefix, shown_as))}")
    for problem in tree.problems:
        print(replace(problem, path=_path(problem.path, folder.prefix, shown_as)))
    documents = [len(tree.resources), len(tree.manifests), len(tree.providerconfigs)]
    return _sum_up(shown_as, documents, [problem.path for problem in tree.problems])


def _path(path: str, prefix: str, shown_as: str) -> str:
    """Return a file's path as seen from where the command was typed, so that an editor can open it."""
    inside = PurePosixPath(path).relative_to(prefix) if prefix else PurePosixPath(path)
    return os.path.normpath(str(PurePosixPath(shown_as) / inside))


def _sum_up(shown_as: str, documents: Sequence[int], broken: Sequence[str]) -> Exit:
    screen = Screen.of()
    names = (("resource", "resources"), ("manifest", "manifests"), ("providerconfig", "providerconfigs"))
    parts = [_counted(count, *name) for count, name in zip(documents, names, strict=True) if count]
    if broken:
        what = f"{_counted(len(broken), 'problem', 'problems')} in {_counted(len(set(broken)), 'file', 'files')}"
        print(screen.paint(f"{shown_as}: {what}", "red"))
        return Exit.INVALID
    if not parts:
        what = "no documents (.json, .yaml or .yml files with a 'type'); a source that looks like this fails"
        print(screen.paint(f"{shown_as}: {what}", "red"))
        return Exit.INVALID
    print(screen.paint(f"{shown_as}: ok ({', '.join(parts)})", "green"))
    return Exit.OK


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
