"""Benches: each measures a part of the product against a reference, in pairs. See docs/benchmarks.md."""
