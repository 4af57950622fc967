"""Notes: what earlier runs of a task have to say about its brief."""
