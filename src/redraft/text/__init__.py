"""Text utilities: safe regular expressions and YAML, and diffs."""
