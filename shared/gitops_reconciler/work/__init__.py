"""The work protocol: asks, claims, leases."""
