"""Who has the places under the deployment's limits."""

from __future__ import annotations

from stado.jobs.claim import claim
from stado.jobs.queue_index import read_page
from stado.jobs.settings import read_settings
from tests.cli.conftest import Program, World
from tests.jobs.world import ALICE


def test_limits_and_who_runs_under_them(stado: Program, world: World) -> None:
    """R64"""
    assert stado("quota").stderr == "no limit is set, and no place is taken\n"
    stado.ok("settings", "set", "groups.limits", "licences:2 big:1")
    assert stado.ok("settings", "get", "groups.limits") == "licences:2 big:1"
    job = stado.ok("submit", "--run-id", "it", "--group", "licences", "true")
    (entry,) = read_page(world.repo).entries
    assert claim(world.repo, entry, ALICE, read_settings(world.repo))
    assert stado.ok("quota").splitlines() == [
        "LIMIT           RUN  MAY  JOBS",
        "group.big         0    1",
        f"group.licences    1    2  {job}",
    ]
    big, licences = stado.json("quota")["limits"]
    assert (big["limit"], big["taken"], licences["taken"]) == (1, 0, 1)
    (held,) = licences["held"]
    assert (held["job_id"], held["consumer"], held["confirmed"]) == (job, "alice", True)


def test_limits_that_cannot_be_are_refused(stado: Program, world: World) -> None:
    for value in ("licences", "licences:-1", "a:1 a:2", "not a name:1", ""):
        assert "must be NAME:NUMBER" in stado.refused("settings", "set", "groups.limits", value)
    assert "must be a whole number" in stado.refused("settings", "set", "quotas.running_jobs", "x")
