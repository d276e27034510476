"""Guarantees of SECURITY.md taken away on purpose, one at a time: the tests that it names must notice."""
