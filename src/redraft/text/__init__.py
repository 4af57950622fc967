"""Text: regular expressions and YAML without bombs, and diffs."""
