"""One suite per contract, over all of its implementations."""
