"""What a target waits for: names become fleet-wide ones, and what leads nowhere or in a circle is refused.

Only what one source declares is seen here. Names of other sources are taken as they are: whether those targets exist is
the store's to know, and a wait for one that does not exist says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from gitops_reconciler.manifests.documents import InputReference
from gitops_reconciler.manifests.known import Known, Reference
from gitops_reconciler.manifests.problems import Complaint, did_you_mean, listed, shown
from gitops_reconciler.manifests.written import WrittenResource

_LONGEST_PATH = 12  # names of a circle that are printed
_LARGEST_PRINTED = 100  # members of which each gets a path of its own

_Edges = Mapping[str, Mapping[str, Reference]]


def references_of(written: WrittenResource, source: str) -> tuple[tuple[Reference, ...], dict[str, InputReference]]:
    """Return what a document refers to, in the order of the file, and its inputs."""
    found = [
        Reference(("depends_on", index), _fleet_wide(name, source)) for index, name in enumerate(written.depends_on)
    ]
    inputs = {}
    for variable, text in written.inputs.items():
        target, _, output = text.rpartition(".")
        inputs[variable] = InputReference(item=_fleet_wide(target, source), output=output)
        found.append(Reference(("inputs", variable), inputs[variable].item))
    return tuple(found), inputs


def _fleet_wide(name: str, source: str) -> str:
    return name if "/" in name else f"{source}/{name}"


def check_dependencies(known: Known) -> None:
    """Refuse references to nothing, to oneself, and in circles; the documents that hold them are taken back."""
    edges: dict[str, dict[str, Reference]] = {}
    for name, document in known.resources.items():
        own = f"{document.origin.source}/"
        for reference in known.references.get(name, ()):
            if reference.item == document.target:
                _refuse(known, name, reference, "a target cannot wait for itself")
            elif reference.item.startswith(own):
                other = reference.item.removeprefix(own)
                if other not in known.names_seen:
                    _refuse(known, name, reference, _unknown(other, known))
                elif other in known.resources:
                    edges.setdefault(name, {}).setdefault(other, reference)
    for circle in _circles(edges):
        for name, path in circle:
            reference = next(edges[name][other] for other in path[1:] if other in edges[name])
            _refuse(known, name, reference, f"waits for itself in a circle: {_printed(path)}")
    for name in [name for name in known.resources if not known.names_seen[name].is_valid]:
        del known.resources[name]


def _refuse(known: Known, name: str, reference: Reference, message: str) -> None:
    entry = known.names_seen[name]
    with entry.about(known.matches.get(name, "")):
        entry.refuse(Complaint(where=reference.where, message=f"'{reference.where[0]}': {message}"))


def _unknown(name: str, known: Known) -> str:
    choices = f"{did_you_mean(name, known.names_seen)}this source declares: {listed(known.names_seen)}"
    return f"unknown target {shown(name)} ({choices}; one of another source is written source/name)"


def _printed(path: Sequence[str]) -> str:
    if len(path) > _LONGEST_PATH:
        path = [*path[: _LONGEST_PATH - 2], f"… ({len(path) - 1} in all)", path[-1]]
    return " -> ".join(path)


def _circles(edges: _Edges) -> Iterator[list[tuple[str, list[str]]]]:
    """Find what hangs together in circles: each member with a way from it back to itself, or a way that it is near."""
    for members in _components(edges):
        if len(members) > 1:
            ordered = sorted(members)
            if len(ordered) <= _LARGEST_PRINTED:
                yield [(name, _way_back(name, members, edges)) for name in ordered]
            else:
                path = _way_back(ordered[0], members, edges)
                yield [(name, _rotated(path, name) or [name, *_one_inside(name, members, edges)]) for name in ordered]


def _rotated(path: list[str], name: str) -> list[str]:
    if name not in path:
        return []
    start = path.index(name)
    return [*path[start:], *path[1 : start + 1]]


def _one_inside(name: str, members: set[str], edges: _Edges) -> list[str]:
    return [next(other for other in edges[name] if other in members), "…", name]


def _way_back(start: str, members: set[str], edges: _Edges) -> list[str]:
    """Return the shortest way from a member to itself."""
    came_from: dict[str, str] = {}
    pending = deque([start])
    while pending:
        name = pending.popleft()
        for other in edges.get(name, ()):
            if other == start:
                path = [start]
                while name != start:
                    path.append(name)
                    name = came_from[name]
                return [start, *reversed(path)]
            if other in members and other not in came_from:
                came_from[other] = name
                pending.append(other)
    return [start]


def _components(edges: _Edges) -> list[set[str]]:
    """Return the strongly connected components (Kosaraju), without recursion: chains may be long."""
    finished: list[str] = []
    seen: set[str] = set()
    for start in edges:
        stack = [] if start in seen else [(start, iter(edges[start]))]
        seen.add(start)
        while stack:
            name, others = stack[-1]
            for other in others:
                if other not in seen:
                    seen.add(other)
                    stack.append((other, iter(edges.get(other, ()))))
                    break
            else:
                finished.append(name)
                stack.pop()
    back: dict[str, list[str]] = {}
    for name, waited_for in edges.items():
        for other in waited_for:
            back.setdefault(other, []).append(name)
    return list(_gathered(reversed(finished), back))


def _gathered(order: Iterator[str], back: Mapping[str, Sequence[str]]) -> Iterator[set[str]]:
    taken: set[str] = set()
    for start in order:
        if start in taken:
            continue
        members, pending = set(), [start]
        while pending:
            name = pending.pop()
            if name not in taken:
                taken.add(name)
                members.add(name)
                pending.extend(back.get(name, ()))
        yield members
