"""Demo: five acts with a small local model, or with a recording of it."""
