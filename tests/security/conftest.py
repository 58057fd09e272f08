from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import Server, run_seaweedfs


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Server]:
    with run_seaweedfs() as server:
        yield server
