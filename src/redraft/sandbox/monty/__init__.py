"""Monty, the interpreter of inline Python, spoken to in its own protocol."""
