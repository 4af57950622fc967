"""Notes: a better brief for each run of a task, learned from the runs before."""
