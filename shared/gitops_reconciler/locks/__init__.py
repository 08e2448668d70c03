"""Locks of (kind, target)."""
