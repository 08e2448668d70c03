"""The only place that starts a subprocess: bounded in time and output, redacted, and never left behind as an orphan.

Two ways of life. In library use a tool gets a session and group of its own: we signal that group, and a watcher ends it
when we die. Inside a supervised run the tool stays in the run's group, whose one owner is the supervisor.
"""

from gitops_reconciler.processes.base import Finished, OnLine, Runner
from gitops_reconciler.processes.running import SubprocessRunner
from gitops_reconciler.processes.starting import Child, find_executable, popen

__all__ = ["Child", "Finished", "OnLine", "Runner", "SubprocessRunner", "find_executable", "popen"]
