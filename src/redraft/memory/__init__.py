"""Shared by notes and lessons: the test of whether they help, and their forbidden content."""
