"""What a playbook did: read from our callback plugin's events, or, without them, from the recap that people read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gitops_reconciler.backends.base import RunLog

PREFIX = "::gitops-event:: "
_RECAP = re.compile(
    r"^(?P<host>\S+)\s*:\s*ok=\d+\s+changed=(?P<changed>\d+)\s+unreachable=(?P<unreachable>\d+)\s+failed=(?P<failed>\d+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One task that failed, or one host that did not answer."""

    host: str
    task: str
    where: str
    why: str

    def __str__(self) -> str:
        """Return `h1: task 'restart' (site.yml:5): no such service`."""
        place = f" ({self.where})" if self.where else ""
        return f"{self.host}: task '{self.task}'{place}: {self.why}"


@dataclass(slots=True)
class Recap:
    """What is known of one run."""

    log: RunLog
    failures: list[Trouble] = field(default_factory=list)
    unreachable: list[Trouble] = field(default_factory=list)
    changed: dict[str, int] = field(default_factory=dict)
    """How many tasks changed something, by host."""
    failed_hosts: list[str] = field(default_factory=list)
    dark_hosts: list[str] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    is_known: bool = False
    """Whether the playbook told its numbers at all."""

    def line(self, stream: str, text: str) -> None:
        """Take one line of output."""
        if stream == "stderr" and text.startswith(PREFIX):
            self._event(text.removeprefix(PREFIX))
            return
        if stream == "stdout" and (match := _RECAP.match(text)):
            self._host(match["host"], {name: int(match[name]) for name in ("changed", "unreachable", "failed")})
        self.log.line(text)

    def read_numbers(self, path: Path) -> None:
        """Take the numbers and outputs that the plugin wrote; they win over what was printed."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        self.changed, self.failed_hosts, self.dark_hosts, self.is_known = {}, [], [], True
        for host, numbers in record["hosts"].items():
            self._host(host, {**numbers, "failed": numbers.get("failures", 0)})
        self.outputs = dict(record["outputs"])

    @property
    def total_changed(self) -> int:
        """Changed tasks over all hosts."""
        return sum(self.changed.values())

    @property
    def summary(self) -> str:
        """Return `h1 changed=3, h2 changed=0`."""
        return ", ".join(f"{host} changed={number}" for host, number in sorted(self.changed.items())[:20])

    def _host(self, host: str, numbers: Mapping[str, int]) -> None:
        self.is_known = True
        self.changed[host] = numbers.get("changed", 0)
        if numbers.get("failed"):
            self.failed_hosts.append(host)
        if numbers.get("unreachable"):
            self.dark_hosts.append(host)

    def _event(self, text: str) -> None:
        try:
            event = json.loads(text)
        except ValueError:  # a redacted value may break it; the recap still counts
            return
        match event.get("event"):
            case "start":
                self.log.tool("ansible-core", str(event.get("version", "")))
            case "failed":
                self.failures.append(_trouble(event))
            case "unreachable":
                self.unreachable.append(_trouble(event))


def _trouble(event: Mapping[str, Any]) -> Trouble:
    return Trouble(**{name: str(event.get(name, "")) for name in ("host", "task", "where", "why")})
