"""The gateway of ``vgpumgr web``: HTTP on the loopback interface, for one browser, to the daemon."""
