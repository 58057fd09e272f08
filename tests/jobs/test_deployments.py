"""`stado.json`: which programs may use a store."""

from __future__ import annotations

import json

import pytest

from stado.core import keys
from stado.core.records import FORMAT_VERSION
from stado.errors import Misconfigured
from stado.jobs.deployments import read_deployment
from tests.jobs.world import World


def test_a_store_of_a_newer_format_is_left_alone(world: World) -> None:
    """R150: as one whose index has another order would be."""
    known = json.loads(world.store.get(keys.DEPLOYMENT).data)
    assert read_deployment(world.store).format == FORMAT_VERSION
    newer = json.dumps({**known, "format": FORMAT_VERSION + 1})
    world.store.put(keys.DEPLOYMENT, newer.encode())
    sentence = f"has format {FORMAT_VERSION + 1} and this stado knows up to {FORMAT_VERSION}"
    with pytest.raises(Misconfigured, match=sentence):
        read_deployment(world.store)
