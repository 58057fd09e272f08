"""`stado view`: where a job that runs can be watched."""

from __future__ import annotations

from stado.core.records import Phase
from stado.core.states import Verdict
from tests.cli.conftest import Program, World

URL = "http://host:6006/#scalars"


def submitted(stado: Program) -> str:
    return stado.ok("submit", "--run-id", "watched", "train")


def test_the_url_of_a_running_job_is_printed_and_nothing_else(stado: Program, world: World) -> None:
    """R125: by any name of the job; `job show` has it too."""
    job_id = submitted(stado)
    world.beat(world.claim(job_id), Phase.RUNNING, live=URL)
    for name in (job_id, "watched"):
        result = stado("view", name)
        assert (result.exit_code, result.stdout, result.stderr) == (0, f"{URL}\n", "")
    assert stado.ok("view") == URL
    told = stado.json("view", job_id)
    assert (told["job_id"], told["run_id"], told["live"]) == (job_id, "watched", URL)
    assert f"live      {URL}" in stado.ok("job", "show", job_id).splitlines()
    assert stado.json("job", "show", job_id)["live"] == URL


def test_a_job_that_does_not_run_has_no_live_view(stado: Program, world: World) -> None:
    """R125: what it stated while it ran counts no more."""
    job_id = submitted(stado)
    assert stado.refused("view", job_id) == (
        f"job {job_id} is queued, it does not run: `stado job why {job_id}` says why it waits"
    )
    claimed = world.claim(job_id)
    world.beat(claimed, Phase.RUNNING, live=URL)
    world.end(claimed, Verdict.COMPLETED, exit_code=0, started_at=world.repo.now())
    assert stado.refused("view", job_id) == (
        f"job {job_id} is completed, it does not run: a live view lasts as long as it does"
    )
    assert stado.json("job", "show", job_id)["live"] is None


def test_a_job_that_states_no_live_view_is_told_how(stado: Program, world: World) -> None:
    """R125: neither before its first beat, nor by the beat of an earlier epoch."""
    job_id = submitted(stado)
    claimed = world.claim(job_id)
    told = f"job {job_id} runs and states no live view: it would with `stado.live(URL)`, or a file "
    assert stado.refused("view", job_id).startswith(told)
    world.beat(claimed, Phase.RUNNING)
    assert stado.refused("view", job_id).startswith(told)
    world.beat(claimed, Phase.RUNNING, epoch=2, live=URL)
    assert stado.refused("view", job_id).startswith(told)


def test_a_beat_with_what_is_no_url_is_not_taken(stado: Program, world: World) -> None:
    job_id = submitted(stado)
    world.beat(world.claim(job_id), Phase.RUNNING, live="http://host/\x1b[2J")
    assert "states no live view" in stado.refused("view", job_id)
