"""Agents that act: a version is one run of a tool-calling agent, from the prompt to its final output."""
