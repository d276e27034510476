"""Recovery, proven by killing: real processes on a machine that outlives them."""
