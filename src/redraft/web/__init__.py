"""Pages: a kept run in one HTML file."""
