"""A callback plugin: tells what a playbook did, one JSON object per line; runs inside Ansible, not inside us.

Failures go to stderr behind a prefix, so that they are redacted like all output. Numbers and outputs go to the file
that GITOPS_EVENTS_FILE names. Nothing of ours is imported: Ansible may run in another Python.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.release import __version__

PREFIX = "::gitops-event:: "
_LONGEST = 1000


def _why(result: dict[str, Any]) -> str:
    """Say why a task failed, of a loop why its first failed item did."""
    failed = [item for item in result.get("results") or [] if isinstance(item, dict) and item.get("failed")]
    if failed:
        return _why(failed[0])
    if result.get("censored"):
        return "hidden by no_log"
    parts = [str(result.get(name) or "").strip()[-_LONGEST:] for name in ("msg", "stderr", "module_stderr", "stdout")]
    return ": ".join(dict.fromkeys(part for part in parts[:3] if part)) or parts[3] or "no message"


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Loaded by Ansible from its plugin path."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gitops_events"

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Tell the version of Ansible itself."""
        self._tell({"event": "start", "version": __version__})

    def v2_runner_on_failed(self, result: Any, ignore_errors: Any = False) -> None:  # noqa: FBT002  # Ansible's signature
        """Tell which task failed where, and why; not when the play does not care."""
        if not ignore_errors:
            self._tell_result("failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Tell which host did not answer."""
        self._tell_result("unreachable", result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Write the numbers of each host and what the playbook set as its stats."""
        path = os.environ.get("GITOPS_EVENTS_FILE")
        if path:
            hosts = {str(host): stats.summarize(host) for host in stats.processed}
            record = {"hosts": hosts, "outputs": stats.custom.get("_run", {})}
            Path(path).write_text(json.dumps(record, default=str), encoding="utf-8")

    def _tell_result(self, event: str, result: Any) -> None:
        host, task, said = result._host, result._task, result._result  # noqa: SLF001  # the names before Ansible 2.19
        fields = {
            "host": host.get_name(),
            "task": task.get_name().strip(),
            "where": os.path.relpath(str(task.get_path() or "")) if task.get_path() else "",
            "why": _why(dict(said)),
        }
        self._tell({"event": event, **fields})

    def _tell(self, event: dict[str, Any]) -> None:
        sys.stderr.write(f"{PREFIX}{json.dumps(event, default=str)}\n")
        sys.stderr.flush()
