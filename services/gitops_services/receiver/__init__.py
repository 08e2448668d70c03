"""Webhooks: verified over the raw bytes, matched by repository and ref, turned into asks."""
