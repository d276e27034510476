"""Simulated pools: controllers, hosts, their store and the network between them, with all that can go wrong."""
