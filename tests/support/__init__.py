"""Real services and helpers that the tests start and end by themselves."""
