"""Evaluators: combine criteria into one evaluation."""
