"""A folder that is handed to Ansible as one of its own: every module in it is a callback plugin."""
