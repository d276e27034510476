"""Where a pool is remembered: one interface, SQLite for one host and etcd for several."""
