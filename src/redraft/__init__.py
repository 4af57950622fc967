"""Reflection for AI agents: redraft the answer, the brief and the playbook."""
