"""What all commands share: the console, exit codes, options."""
