"""Property tests: the same examples each time, nothing kept, and no clock that fails a busy machine."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

__all__ = ["example", "given", "settings", "some"]

settings.register_profile(
    "house",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")
