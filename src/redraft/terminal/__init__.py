"""What every command uses: the console, exit codes, shared options."""
