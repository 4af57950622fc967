"""Where other people's agents meet Redraft."""
