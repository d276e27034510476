"""Policy: which steps lead from what is to what is asked, and carrying them out."""
