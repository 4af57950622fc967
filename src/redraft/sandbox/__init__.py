"""Untrusted code: commands in a jail, and scripts in the sandbox of their language."""
