"""Frozen typed values: what every part of the program speaks about. No I/O, nothing of ours is
imported.
"""
