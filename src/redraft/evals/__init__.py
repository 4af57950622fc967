"""Proof: whether reflecting pays, on cases of one's own."""
