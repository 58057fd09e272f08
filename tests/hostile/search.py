"""How input is searched here: the same examples in each run, few enough for a check of a change."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

SLOW_TO_MAKE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def examples(count: int) -> settings:
    """The settings of a test that looks at so many examples."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[*SLOW_TO_MAKE, HealthCheck.function_scoped_fixture],
    )
