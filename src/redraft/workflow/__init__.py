"""Workflows: agents with self-correction as YAML files."""
