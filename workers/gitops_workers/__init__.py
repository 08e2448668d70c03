"""The Celery workers that run the ticks of a fleet."""
