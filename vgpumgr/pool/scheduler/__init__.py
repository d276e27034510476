"""Decisions of the pool, as pure functions of hosts and tasks: no file, no clock, no network."""
