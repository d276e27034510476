"""The operations, one file per noun."""
