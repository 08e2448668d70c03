"""The only package that runs git."""
