"""Two hosts, installed from the built wheel and told what README.md shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.two_hosts import SMALL, NoInterpreter, try_two_hosts


def test_two_hosts_from_the_wheel_by_the_readme_alone(
    record_property: Callable[[str, object], None],
) -> None:
    """A03, A10, R191: a batch on both, one is drained, one loses its power; nothing is lost."""
    said: list[str] = []

    def say(line: str) -> None:
        print(line)
        said.append(line)

    try:
        try_two_hosts(SMALL, say)
    except NoInterpreter as error:
        pytest.skip(str(error))
    finally:
        record_property("two_hosts", said[0] if said else "nothing was made")
