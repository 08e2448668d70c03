"""Runs of the fleet: a worker launches them, a run process does them, its supervisor writes their end."""
