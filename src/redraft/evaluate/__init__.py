"""Evaluators: criteria to one evaluation."""
