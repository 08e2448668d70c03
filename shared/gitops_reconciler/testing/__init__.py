"""Fakes of the library's contracts, for its own tests and for those of backends made elsewhere."""
