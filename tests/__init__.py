"""The tests of the product, importable from the checkout's root."""
