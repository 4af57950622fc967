"""Lessons: what went wrong once is known ever after, as plain files that a person can read and edit."""
