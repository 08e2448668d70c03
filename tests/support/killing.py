"""Kills a process and all below it at one blow, so that none of them notices another's death and tidies up."""

import signal
from pathlib import Path

from gitops_reconciler.supervise.procfs import Identity, descendants, send
from tests.support.processes import eventually


def kill_all_below(root: Identity, *, spare: str = "") -> None:
    """SIGKILL to a process and all below it; those with `spare` in their name live on."""
    seen: set[Identity] = set()
    while fresh := {root, *(process.identity for process in descendants(root.pid))} - seen:
        seen |= fresh
        for process in fresh:
            send(process, signal.SIGSTOP)
    doomed = {process for process in seen if not spare or spare not in name_of(process.pid)}
    for process in doomed:
        send(process, signal.SIGKILL)
    for process in seen - doomed:
        send(process, signal.SIGCONT)
    assert eventually(lambda: not any(process.is_alive for process in doomed), within=30)


def name_of(pid: int) -> str:
    """The name of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
