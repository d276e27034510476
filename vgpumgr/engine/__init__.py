"""What makes a change safe: steps, journal, executor, transaction, recovery."""
