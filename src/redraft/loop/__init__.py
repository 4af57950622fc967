"""This run: the loop, when it stops, how it revises, which version it returns."""
