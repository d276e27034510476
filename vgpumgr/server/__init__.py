"""The daemon: HTTP, roles, audit, events, reconcile."""
