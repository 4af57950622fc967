"""What runs inside the workers: the standard library, one interpreter, and nothing of the host."""
