"""What operations answer: the public JSON."""
