"""A Debian with our packages, whose first process is systemd, in namespaces of this machine's."""
