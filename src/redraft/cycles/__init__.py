"""Cycles: agents that go round, Sense, Reason, Actuate, Reflect, and remember within bounds."""
