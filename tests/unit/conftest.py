"""Hypothesis is repeatable."""

from hypothesis import settings

# The same examples on every run and every machine: a failure here is a failure everywhere.
settings.register_profile("repeatable unit tests", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable unit tests")
