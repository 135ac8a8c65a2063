"""Fixtures for every test: hypothesis profiles that do not depend on how busy the machine is."""

import os

from hypothesis import HealthCheck, settings

# No deadline: a time bound tighter than ten times the usual fails on a busy machine.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("explore", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
