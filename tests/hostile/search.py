"""How input is searched here: as elsewhere, with fixtures that serve all examples of a test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.search import examples as bounded

_FINE = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,
]


def examples(count: int) -> settings:
    """The settings of a test that looks at so many examples in a check."""
    return settings(bounded(count), suppress_health_check=_FINE)
