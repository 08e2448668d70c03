"""Chaos: a real fleet under a seeded schedule of faults, and a checker that reads nothing but files (`make chaos`)."""
