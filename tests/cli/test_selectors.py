"""Which jobs a part of an id means where there are very many."""

from __future__ import annotations

import pytest

from stado.cli.selectors import select
from stado.core import keys
from stado.core.ids import job_ids
from stado.core.states import State
from stado.errors import Refused
from tests.jobs.world import World

MANY = 20_001
"""One more than are searched of each state."""


def bury(world: World, base: str) -> list[str]:
    """So many jobs at rest with this base id."""
    members = job_ids(base, count=MANY, batch=True)
    for job_id in members:
        world.store.put(keys.record(State.COMPLETED, job_id), b"")
    return members


def test_a_part_is_refused_where_not_every_id_was_looked_at() -> None:
    """`cancel` would take the first that it finds for the only one."""
    world = World()
    job = world.submit()
    bury(world, "a" * 16)
    with pytest.raises(Refused, match="type the whole id") as refused:
        select(world.repo, job[6:], user="ada")
    assert refused.value.code == "search_cut"
    assert select(world.repo, job, user="ada").job_ids == [job]


def test_a_part_of_a_batch_that_is_too_large_is_refused_and_its_base_id_is_not() -> None:
    world = World()
    base = "b" * 16
    members = bury(world, base)
    with pytest.raises(Refused, match="type the whole id"):
        select(world.repo, base[:8], user="ada")
    assert select(world.repo, base, user="ada").job_ids == members
