"""Sandboxes for untrusted code: a jail for commands, and interpreters for scripts."""
