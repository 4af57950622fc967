"""Integrations: agents of other frameworks, hooks of coding agents, and the MCP server."""
