"""What ran in this project: list, show, explain, resume."""
