"""The same random programs, directly on the simulated driver and forwarded: same results, same error codes."""
