"""Many hosts as one pool: which host and which GPU a task gets."""
