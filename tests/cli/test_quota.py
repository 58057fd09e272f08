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


def test_cards_are_counted_with_who_has_how_many(stado: Program, world: World) -> None:
    """R64"""
    stado.ok("settings", "set", "quotas.running_gpus_per_user", "4")
    assert stado("quota").stderr == (
        "no place is taken under the limits of each user, and no other limit is set\n"
    )
    stado.ok("settings", "set", "groups.gpus", "big:3")
    job = stado.ok("submit", "--run-id", "it", "--group", "big", "--gpus", "2", "true")
    (entry,) = read_page(world.repo).entries
    assert claim(world.repo, entry, ALICE, read_settings(world.repo))
    assert stado.ok("quota").splitlines() == [
        "LIMIT           RUN  MAY  JOBS",
        f"gpus-group.big    2    3  {job} (2)",
        f"gpus-user.ada     2    4  {job} (2)",
    ]
    assert [one["of"] for one in stado.json("quota")["limits"]] == ["cards", "cards"]


def test_a_submitter_is_told_what_the_deployment_lets_start(stado: Program, world: World) -> None:
    """R64: at once, with what would help."""
    stado.ok("settings", "set", "quotas.running_gpus", "4")
    said = stado("submit", "--run-id", "large", "--gpus", "8", "true").stderr
    assert (
        "it will not start: it asks for 8 cards, and jobs of the deployment may hold 4 cards at a "
        "time\nto do: submit it with fewer cards; `stado settings set quotas.running_gpus` allows "
        "more\n"
    ) in said
    never = "mon@00:00-00:01@UTC tue@00:00-00:01@UTC"
    rules = " ".join(f"group.big:{one}" for one in never.split())
    stado.ok("settings", "set", "windows.rules", rules)
    assert stado.ok("settings", "get", "windows.rules") == rules
    said = stado("submit", "--run-id", "night", "--group", "big", "true").stderr
    if "when a worker is at work" not in said:  # it is not that very minute
        assert "00:00Z, when a window opens: jobs of group big start mon 00:00-00:01 (UTC)" in said
        assert stado.json("job", "why", "night")["wait_reasons"][0] == "waiting_window"


def test_limits_that_cannot_be_are_refused(stado: Program, world: World) -> None:
    for value in ("licences", "licences:-1", "a:1 a:2", "not a name:1", ""):
        assert "must be NAME:NUMBER" in stado.refused("settings", "set", "groups.limits", value)
        assert "must be NAME:NUMBER" in stado.refused("settings", "set", "groups.gpus", value)
    assert "must be a whole number" in stado.refused("settings", "set", "quotas.running_jobs", "x")
