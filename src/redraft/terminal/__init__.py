"""The console, exit codes and options that all commands share."""
