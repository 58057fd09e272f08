"""How input is searched here: slowly made, and often thrown away."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests import search

SLOW_TO_MAKE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def examples(count: int) -> settings:
    """The settings of a test that looks at so many examples in a check."""
    return settings(
        search.examples(count),
        suppress_health_check=[*SLOW_TO_MAKE, HealthCheck.function_scoped_fixture],
    )
