"""The daemon's API: real processes on real sockets; what is below the application is in memory."""
