"""all-MiniLM-L6-v2: the vocabulary that its weights read by, and where both come from."""
