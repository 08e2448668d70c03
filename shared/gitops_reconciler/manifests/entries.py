"""One file of the tree while it is being read: its content, its scope, and what was found wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from gitops_reconciler.errors import Reason
from gitops_reconciler.manifests.loading import is_json
from gitops_reconciler.manifests.parsing import Parsed, parse
from gitops_reconciler.manifests.problems import (
    Complaint,
    DocumentProblem,
    DocumentWarning,
    UnreadableError,
    Where,
    complaints_of,
    field_name,
    on_one_line,
    shown,
)
from gitops_reconciler.manifests.written import Written

_MOST_PROBLEMS = 20  # of one file: whoever has so many does not need them all

W = TypeVar("W", bound=Written)


@dataclass(slots=True)
class Entry:
    """A file, and the problems that it gathers; valid as long as it has none."""

    path: str
    scope: str
    """Folder of the scope that a problem freezes."""
    parsed: Parsed | None = None
    problems: list[DocumentProblem] = field(default_factory=list)
    warnings: list[DocumentWarning] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Of the targets that the file declares, validly or not."""
    _match: str = ""

    @property
    def is_valid(self) -> bool:
        """Whether nothing was found wrong so far."""
        return not self.problems

    @property
    def value(self) -> Mapping[str, Any]:
        """The fields of the file; none when it could not be read."""
        return self.parsed.value if self.parsed is not None else {}

    def read(self, data: bytes) -> None:
        """Parse the file; a file that cannot be read has a problem afterwards, and no fields."""
        try:
            # Such a name has no id: a UUID of it cannot be made.
            self.path.encode()
            self.parsed = parse(data, is_json=is_json(self.path))
        except UnicodeEncodeError:
            self._add(1, 1, "the file's name is not UTF-8", Reason.INVALID_DOCUMENT)
        except UnreadableError as error:
            self._add(error.line, error.column, str(error), error.reason)

    def line(self) -> int:
        """Return where the document begins."""
        return self.parsed.position()[0] if self.parsed is not None else 1

    def refuse(self, complaint: Complaint) -> None:
        """Add a problem, at its place in the file."""
        line, column = (1, 1)
        if self.parsed is not None:
            line, column = self.parsed.position(complaint.where, of_key=complaint.is_about_key)
        self._add(line, column, complaint.message, complaint.reason)

    @contextmanager
    def about(self, match: str) -> Iterator[None]:
        """Say with every problem that is found meanwhile which match of a `for_each` it is about; empty: none."""
        self._match = match
        try:
            yield
        finally:
            self._match = ""

    def refuse_all(self, complaints: Iterable[Complaint]) -> None:
        """Add several problems."""
        for complaint in complaints:
            self.refuse(complaint)

    def refuse_not_built(self, value: Any, names: frozenset[str], where: Where = ()) -> Any:
        """Refuse fields that come later, and return the others."""
        if not isinstance(value, Mapping):
            return value
        for name in sorted(names & value.keys()):
            place = (*where, name)
            message = f"'{field_name(place)}' is not built in this version (it comes later)"
            self.refuse(Complaint(where=place, message=message, reason=Reason.NOT_BUILT, is_about_key=True))
        return {key: item for key, item in value.items() if key not in names}

    def check(self, model: type[W], value: Any, where: Where = ()) -> W | None:
        """Return what is written there, or refuse it."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            self.refuse_all(complaints_of(error, model, where))
            return None

    def _add(self, line: int, column: int, message: str, reason: Reason) -> None:
        # The words of libraries may quote what they were given.
        text = on_one_line(f"{message} (for_each: {shown(self._match)})" if self._match else message)
        problem = DocumentProblem(
            path=self.path, line=line, column=column, message=text, reason=reason, scope=self.scope
        )
        if len(self.problems) < _MOST_PROBLEMS and problem not in self.problems:
            self.problems.append(problem)
