"""Models: providers, offline weights, the shipped fake, and a cassette."""
