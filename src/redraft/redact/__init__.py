"""What must never be written down or shown: found in any text, and withheld."""
