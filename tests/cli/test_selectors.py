"""Which jobs people mean by what they type, also where there are very many."""

from __future__ import annotations

import pytest

from stado.cli.selectors import select, select_ended, select_live
from stado.core import keys
from stado.core.ids import job_ids
from stado.core.pipelines import step_run_id
from stado.core.spec import Spec, StepOf, make_request
from stado.core.states import State
from stado.errors import Refused
from stado.jobs.submission import run_record_of, write_jobs
from stado.storage.observe import CountingStore
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


@pytest.mark.parametrize("text", ["{id}", " {ID}\n", "{PART}", "{run}", "LAST", " last "])
def test_case_and_blanks_are_forgiven_in_ids(text: str) -> None:
    """R28, R119"""
    world = World()
    world.submit(run_id="older")
    world.clock.sleep(1)
    job = world.submit(run_id="Sweep-7")
    typed = text.format(id=job, ID=job.upper(), PART=job[8:].upper(), run="Sweep-7")
    assert select(world.repo, typed, user="ada").job_ids == [job]


@pytest.mark.parametrize("steps", [3, 40, 200])
def test_last_is_not_looked_for_among_too_many_steps(steps: int) -> None:
    """R119: the newest is looked at alone, then a page at a time, and 200 at most."""
    world = World()
    job = world.submit(run_id="root")
    for place in range(steps):
        root, number = "r" * 15 + "abcdefghij"[place // 20], place % 20 + 1
        step_of = StepOf(root=root, number=number, name="export")
        request = make_request(["x"], Spec(command="", step_of=step_of), batch=False)
        world.clock.sleep(1)
        stored, _ = run_record_of(world.repo, step_run_id(root, number), request, "ada", None)
        write_jobs(world.repo, stored)
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    if steps < 200:
        assert select(repo, "last", user="ada").job_ids == [job]
    else:
        with pytest.raises(Refused, match="the newest 200 jobs of ada are steps") as refused:
            select(repo, "last", user="ada")
        assert refused.value.code == "search_cut"
    assert sum(counting.snapshot().counts.values()) <= 2 * (steps + 16) + steps // 10 + 2


def test_a_run_id_means_what_it_says(world: World) -> None:
    lower, upper = world.submit(run_id="seed-1"), world.submit(run_id="SEED-1")
    assert select(world.repo, "seed-1", user="ada").job_ids == [lower]
    assert select(world.repo, "SEED-1", user="ada").job_ids == [upper]
    with pytest.raises(Refused, match="did you mean seed-1"):
        select(world.repo, "Seed-1", user="ada")


def test_an_ambiguous_part_names_states_and_how_many_more(world: World) -> None:
    for _ in range(9):
        world.submit()
    world.clock.sleep(1)
    base = world.submit("one", "two")
    with pytest.raises(Refused) as refused:
        select(world.repo, base[:6], user="ada")
    assert refused.value.text.startswith(f"{base[:6]!r} could mean 10 of them: ")
    assert f"{base} (2 queued), " in refused.value.text
    assert refused.value.text.endswith(" (queued), 2 more; type more of the id")


def test_an_unknown_name_says_where_it_was_looked_for_at_a_bounded_price(world: World) -> None:
    """A54"""
    for number in range(400):
        world.submit(run_id=f"train-{number:03d}")
    counting = CountingStore(world.store, world.tasks)
    with pytest.raises(Refused) as refused:
        select(world.repo_over(counting), "train-0007", user="ada")
    assert "there is no job 'train-0007', nor a batch or run of that name, in " in str(
        refused.value
    )
    assert "did you mean train-007" in str(refused.value)
    assert counting.snapshot().of() < 100


@pytest.mark.parametrize("letters", [16, 9])
def test_a_batch_is_whole_though_one_of_it_moves_while_it_is_listed(
    world: World, letters: int
) -> None:
    """A job between two states may be missing from every listing; a cancel must not miss it."""
    base = world.submit("one", "two")
    world.store.delete(keys.record(State.QUEUED, f"{base}-2"), None)
    selection = select(world.repo, base[:letters], user="ada")
    assert (selection.job_ids, selection.batch) == ([f"{base}-1", f"{base}-2"], True)


def test_a_batch_whose_run_cannot_be_read_is_what_is_listed(world: World) -> None:
    base = world.submit("one", "two")
    world.store.put(keys.record(State.QUEUED, f"{base}-1"), b"{")
    assert select(world.repo, base, user="ada").job_ids == [f"{base}-1", f"{base}-2"]


@pytest.mark.parametrize("text", ["", "  ", "ab", "all"])
def test_what_names_nothing_selects_nothing(world: World, text: str) -> None:
    world.submit()
    with pytest.raises(Refused):
        select(world.repo, text, user="ada")


def test_all_are_the_jobs_of_one_user(world: World) -> None:
    done = world.submit(run_id="done")
    world.end(world.claimed_of(done))
    running, queued = world.submit(run_id="running"), world.submit("one", "two")
    world.claimed_of(running)
    assert select_live(world.repo, user="ada").job_ids == sorted(
        [running, f"{queued}-1", f"{queued}-2"]
    )
    assert select_ended(world.repo, user="ada").job_ids == [done]
    assert select_live(world.repo, user="bob").job_ids == []
    assert select_ended(world.repo, user="bob").job_ids == []


@pytest.fixture
def world() -> World:
    return World()
