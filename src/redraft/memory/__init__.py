"""What notes and lessons share: the test of whether they help, and what they may contain."""
