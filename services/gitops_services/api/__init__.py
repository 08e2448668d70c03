"""The API: what the fleet is, what it did, and asks for more."""
