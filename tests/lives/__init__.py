"""Thousands of guest processes, a third of them killed at chosen moments: nothing of them is left on the host."""
