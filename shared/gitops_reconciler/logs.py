"""Logs: one event per line for services, and the log of one run, where every line is redacted before it is written."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from gitops_reconciler.redaction import Redactor, printable

_LONGEST_LINE = 4000
_LARGEST_LOG = 8 << 20
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(slots=True)
class RunLogWriter:
    """The log of a run, written to its own file; implements the backends' `RunLog`."""

    stream: TextIO
    redactor: Redactor
    tools: dict[str, str] = field(default_factory=dict)
    _written: int = 0

    def line(self, text: str) -> None:
        """Append one line: redacted, without control characters, cut; nothing more once the log is full."""
        for part in text.splitlines() or [""]:
            self._write(part)

    def phase(self, name: str) -> None:
        """Say that a phase begins."""
        self._write(f"== {name}")

    def tool(self, name: str, version: str) -> None:
        """Note a tool's version, once."""
        if self.tools.get(name) != version:
            self.tools[name] = version
            self._write(f"{name} {version}")

    def _write(self, text: str) -> None:
        if self._written > _LARGEST_LOG:
            return
        clean = printable(self.redactor.text(text))
        cut = clean if len(clean) <= _LONGEST_LINE else f"{clean[:_LONGEST_LINE]} … ({len(clean)} characters)"
        self._written += len(cut)
        if self._written > _LARGEST_LOG:
            cut = f"(the log is full at {_LARGEST_LOG} characters; the rest is dropped)"
        self.stream.write(f"{datetime.now(UTC):%H:%M:%S.%f}"[:12] + f" {cut}\n")
        self.stream.flush()


class _JsonFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        entry.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        plain = json.loads(json.dumps(entry, default=str))
        return printable(json.dumps(self._redactor.value(plain), ensure_ascii=False))


class _ConsoleFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        extras = " ".join(f"{name}={value}" for name, value in vars(record).items() if name not in _STANDARD)
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():<7} {record.getMessage()}"
        line = f"{line} {extras}" if extras else line
        line = f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
        return printable(self._redactor.text(line))


def set_up_logging(log_format: str, level: str, *, redactor: Redactor | None = None) -> None:
    """Send the root logger to stderr, one event per line; `log_format` is `console` or `json`.

    Whatever is logged, also by libraries, is redacted as a whole: message, fields and traceback.
    """
    handler = logging.StreamHandler(sys.stderr)
    formatter = _JsonFormatter if log_format == "json" else _ConsoleFormatter
    handler.setFormatter(formatter(redactor or Redactor()))
    logging.basicConfig(level=level, handlers=[handler], force=True)
