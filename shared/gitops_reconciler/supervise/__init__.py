"""Runs as supervised units: zygote, guard, supervisor, run process (DESIGN section 3). Linux only."""
