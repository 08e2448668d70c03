"""The desired-state tree: files of a folder or of a git revision become typed, checked, frozen documents."""
