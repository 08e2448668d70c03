"""Channels by which people hear of transitions."""
