"""What the bench `tick` and its worker agree on."""

RAW_TASK = "bench.raw"
RAW_POOL = "raw"
TICK_POOL = "resources"
A_COUNT = 100
"""How many ended tasks make one byte."""
