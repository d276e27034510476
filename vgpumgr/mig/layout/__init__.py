"""Layouts of MIG instances: what is wanted, and the least change that leads there. Pure."""
