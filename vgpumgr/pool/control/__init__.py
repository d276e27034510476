"""Who gets which GPU of a pool: records in the store, the controller that grants, and the host that holds."""
