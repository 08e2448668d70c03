"""What is kept of targets: files for one host, Redis for the fleet."""
