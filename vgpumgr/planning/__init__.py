"""Pure planners: from a snapshot and a request to a plan or a refusal."""
