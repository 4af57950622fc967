"""Running code that is not ours."""
