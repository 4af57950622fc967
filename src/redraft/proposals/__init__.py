"""Proposals: checks that stored outputs suggest, for a person to accept."""
