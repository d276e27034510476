"""Every change of the host, one file per kind of thing."""
