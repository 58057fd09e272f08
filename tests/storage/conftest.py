from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers.catalogue import CLIENT_ENVIRONMENT
from tests.storage.stores import Stores, all_stores


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    before = {name: os.environ.get(name) for name in CLIENT_ENVIRONMENT}
    os.environ.update(CLIENT_ENVIRONMENT)
    try:
        with all_stores(tmp_path_factory.mktemp("stores")) as made:
            yield made
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
