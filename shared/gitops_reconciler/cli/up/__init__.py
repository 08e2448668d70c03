"""`gitops up`: the whole fleet on this machine, under one supervisor, with one readable log."""

from gitops_reconciler.cli.up.running import UpOptions, run_up

__all__ = ["UpOptions", "run_up"]
