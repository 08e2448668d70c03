"""The console: the fleet at a glance, for people; reads only."""
