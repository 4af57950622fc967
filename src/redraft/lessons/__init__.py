"""Lessons: what agents learned from failures, stored as plain files you can read and edit."""
