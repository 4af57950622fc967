"""Stores: where records are kept."""
