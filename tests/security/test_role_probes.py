"""What `stado doctor --role` tries is what the policy of that role grants."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.jobs.role_probes import Act, Probed, probes_of, try_role
from stado.storage.port import walk
from tests.jobs.world import World
from tests.security.asking import RecordingStore, Request
from tests.security.policies import CLOUDS

ROLES = ("reader", "submitter", "agent", "coordinator")


def tried(role: str) -> tuple[set[Request], list[Probed]]:
    world = World()
    world.submit("true")
    world.end(world.start())
    requests: set[Request] = set()
    repo = world.repo_over(RecordingStore(world.store, requests))
    before = [(entry.key, entry.version) for entry in walk_all(world)]
    found = list(try_role(repo, role))
    assert [(entry.key, entry.version) for entry in walk_all(world)] == before
    return requests, found


def walk_all(world: World) -> list[object]:
    folders = ("", keys.RUNS, "completed/", "queue/", "running/", keys.CAPACITY, "control/")
    return [entry for folder in folders for entry in walk(world.store, folder)]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_is_tried_of_a_role_is_granted_by_its_policy(cloud: str, role: str) -> None:
    """R247: and leaves nothing behind."""
    policy_of, asks_of = CLOUDS[cloud]
    policy = policy_of(role)
    requests, found = tried(role)
    refused = [one for one in requests if not all(map(policy.allows, asks_of(one)))]
    assert refused == []
    assert all(one.tried and one.error is None for one in found)


@pytest.mark.parametrize("role", ROLES[1:])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_reader_is_denied_something_of_each_other_role(cloud: str, role: str) -> None:
    """R247: each write and delete of it."""
    policy_of, asks_of = CLOUDS[cloud]
    reader = policy_of("reader")
    requests, _ = tried(role)
    refused = [one for one in requests if not all(map(reader.allows, asks_of(one)))]
    writing = [one for one in probes_of(role) if one.act not in (Act.READ, Act.LIST)]
    assert len(refused) >= len(writing)
