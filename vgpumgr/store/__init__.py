"""What is remembered: SQLite in the state directory."""
