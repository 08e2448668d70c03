"""The services around a fleet: receiver, API, console and scheduler."""
