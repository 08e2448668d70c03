"""Reads what `terraform … -json` says while it runs: changes, outputs, errors; and makes log lines for people of it.

Plain text is understood as well, as far as one number per change goes: not every flavour speaks JSON everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gitops_reconciler.backends.base import RunLog
from gitops_reconciler.backends.messages import head, tail
from gitops_reconciler.models import ChangeCounts

_PLAIN_SUMMARY = re.compile(
    r"Resources: (?:(?P<import>\d+) imported, )?(?:(?P<add>\d+) added, (?P<change>\d+) changed, )?"
    r"(?P<remove>\d+) destroyed"
)
_SILENT = frozenset({"version", "refresh_complete"})
_NO_CHANGE = frozenset({"noop", "no-op", "read"})
_INIT_NEEDED = re.compile(r"\b(terraform|tofu) init\b")
_LOCK_FIELD = re.compile(r"^[ \t]+(?P<name>ID|Path|Operation|Who|Created):[ \t]+(?P<value>\S.*?)[ \t]*$", re.MULTILINE)
_HTTP_LOCK = re.compile(r"HTTP remote state already locked: ID=(?P<id>\S*)")
_WITH_THE_LOCK = frozenset({"refresh_start", "planned_change", "resource_drift", "change_summary", "apply_start"})
_FRAME = re.compile(r"^[╷│╵] ?", re.MULTILINE)
_ONLY_ANNOUNCES = re.compile(r"(Terraform|OpenTofu) encountered problems during initiali[sz]ation")
LONGEST_MESSAGE = 4000
_OUR_STATE_FLAG = "Deprecated flag: -state"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error of the engine."""

    summary: str
    detail: str = ""
    where: str = ""
    """`main.tf:8`, or empty."""
    address: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Diagnostic:
        """Read it from the JSON of a diagnostic message."""
        place = fields.get("range") or {}
        line = (place.get("start") or {}).get("line")
        where = f"{place['filename']}:{line}" if place.get("filename") and line else ""
        return cls(str(fields.get("summary", "")), str(fields.get("detail", "")), where, str(fields.get("address", "")))

    def __str__(self) -> str:
        """Return it in one paragraph: what, where, why."""
        places = [place for place in (self.where, self.address) if place]
        what = f"{self.summary} ({', '.join(places)})" if places else self.summary
        why = self.detail.strip()
        return f"{what}: {why}" if why else what

    @property
    def lock(self) -> dict[str, str]:
        """Return who holds the state's lock (ID, Path, Operation, Who, Created); empty: this is another error."""
        if self.summary != "Error acquiring the state lock":
            return {}
        fields = {match["name"]: match["value"] for match in _LOCK_FIELD.finditer(self.detail)}
        of_http = _HTTP_LOCK.search(self.detail)
        if of_http and of_http["id"] != fields.get("ID"):  # who was refused describes itself (up to Terraform 1.11)
            return {"ID": of_http["id"]}
        return fields

    @property
    def asks_for_init(self) -> bool:
        """Whether initialising the folder is what the engine asks for."""
        return bool(_INIT_NEEDED.search(self.summary) or _INIT_NEEDED.search(self.detail))


@dataclass(frozen=True, slots=True)
class Change:
    """What is planned for, or was done to, one resource."""

    address: str
    action: str

    def __str__(self) -> str:
        """Return `create terraform_data.a`."""
        return f"{self.action} {self.address}"


@dataclass(slots=True)
class Stream:
    """What one command has said so far."""

    log: RunLog
    tool: str
    errors: list[Diagnostic] = field(default_factory=list)
    planned: list[Change] = field(default_factory=list)
    applied: list[Change] = field(default_factory=list)
    drifted: list[Change] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """add, change, remove, import: of the apply or destroy where there was one, else of the plan."""
    outputs_change: bool = False
    on_locked: Callable[[str], None] | None = None
    """Told once, with the engine's own timestamp, that it did what it does only with the state's lock held."""

    def line(self, stream: str, text: str) -> None:
        """Take one line of output."""
        message = _message(text) if stream == "stdout" else None
        if message is None:
            self._plain(text)
            return
        kind = str(message.get("type", ""))
        if kind in _WITH_THE_LOCK and self.on_locked is not None:
            self.on_locked(str(message.get("@timestamp", "")))
            self.on_locked = None
        self._read(kind, message)
        if kind not in _SILENT:
            self._show(kind, message)

    @property
    def lock(self) -> dict[str, str]:
        """Return who holds the state's lock and kept the command out; empty when nobody did."""
        return next((error.lock for error in self.errors if "ID" in error.lock), {})

    @property
    def leaves_lock(self) -> bool:
        """Whether the command could not give the state's lock back."""
        return any(error.summary == "Error releasing the state lock" for error in self.errors)

    @property
    def changes_something(self) -> bool:
        """Whether resources, their addresses, or outputs are not as they were; reading data is no change."""
        return bool(self.planned or self.outputs_change or any(self.counts.values()))

    @property
    def change_counts(self) -> ChangeCounts:
        """Return the engine's own numbers."""
        return ChangeCounts(
            added=self.counts.get("add", 0),
            changed=self.counts.get("change", 0),
            removed=self.counts.get("remove", 0),
        )

    @property
    def summary(self) -> str:
        """Return `1 added, 0 changed, 0 destroyed`, and what these numbers leave out."""
        counts = self.change_counts
        words = [f"{counts.added} added", f"{counts.changed} changed", f"{counts.removed} destroyed"]
        for action, word in (("import", "imported"), ("move", "moved"), ("remove", "forgotten")):
            number = max(sum(change.action == action for change in self.planned), self._imported(action))
            words += [f"{number} {word}"] if number else []
        return ", ".join([*words, *(["outputs changed"] if self.outputs_change else [])])

    def _imported(self, action: str) -> int:
        return self.counts.get("import", 0) if action == "import" else 0

    def _read(self, kind: str, message: Mapping[str, Any]) -> None:
        match kind:
            case "version":
                self._read_version(message)
            case "diagnostic":
                self._read_diagnostic(message)
            case "planned_change":
                self.planned += _changes_of(message.get("change"))
            case "resource_drift":
                self.drifted += _changes_of(message.get("change"))
            case "apply_complete":
                self.applied += _changes_of(message.get("hook"))
            case "change_summary":
                self._read_summary(message)
            case "outputs":
                self._read_outputs(message)

    def _plain(self, text: str) -> None:
        if match := _PLAIN_SUMMARY.search(text):
            self.counts = {name: int(number or 0) for name, number in match.groupdict().items()}
        self.log.line(text)

    def _show(self, kind: str, message: Mapping[str, Any]) -> None:
        if kind != "diagnostic":
            self.log.line(str(message.get("@message", "")))
            return
        fields = message.get("diagnostic") or {}
        if fields.get("summary") != _OUR_STATE_FLAG:
            self.log.line(f"{str(fields.get('severity', 'error')).capitalize()}: {Diagnostic.of(fields)}")

    def _read_version(self, message: Mapping[str, Any]) -> None:
        version = message.get("terraform") or message.get("tofu") or str(message.get("@message", "")).split()[-1:]
        if isinstance(version, str):
            self.log.tool(self.tool, version)

    def _read_diagnostic(self, message: Mapping[str, Any]) -> None:
        fields = message.get("diagnostic") or {}
        if fields.get("severity") == "error":
            self.errors.append(Diagnostic.of(fields))

    def _read_summary(self, message: Mapping[str, Any]) -> None:
        changes = message.get("changes") or {}
        self.counts = {name: int(changes.get(name) or 0) for name in ("add", "change", "remove", "import")}

    def _read_outputs(self, message: Mapping[str, Any]) -> None:
        # Before the apply each output comes with an action, after it with a value.
        outputs = message.get("outputs") or {}
        if any(output.get("action", "noop") not in _NO_CHANGE for output in outputs.values()):
            self.outputs_change = True


def _message(text: str) -> dict[str, Any] | None:
    """Return the message of a line, or None when it is plain text."""
    if not text.startswith("{"):
        return None
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message if isinstance(message, dict) and "@message" in message else None


def _changes_of(fields: Any) -> list[Change]:
    """Return the change of a message as a list of none or one; reading data is none."""
    action = str((fields or {}).get("action", "noop"))
    address = str(((fields or {}).get("resource") or {}).get("addr", ""))
    return [] if action in _NO_CHANGE else [Change(address, action)]


def plain_errors(stderr: str) -> str:
    """Return the errors that a command printed for people, each once, without frames or warnings; else its end."""
    text = _FRAME.sub("", stderr)
    blocks = dict.fromkeys(block.strip() for block in re.split(r"(?:^|\n)Error: ", text)[1:])
    errors = [block for block in blocks if not _ONLY_ANNOUNCES.match(block)] or list(blocks)
    return head("\n".join(errors), LONGEST_MESSAGE) if errors else tail(text)
