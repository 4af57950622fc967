"""What runs inside the jailed child: only the standard library, and nothing of the host is imported."""
