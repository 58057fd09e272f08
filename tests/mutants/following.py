"""Steps and dependents without one of their rules."""

from __future__ import annotations

import itertools

from stado.core import moves, pipelines
from stado.core.records import Awaited, Record
from stado.core.states import AfterWhen, State, Verdict
from stado.jobs import deletion, dependents, endings, queue_index, submission
from stado.jobs import pipelines as launching
from stado.jobs.repository import Repository, Stored
from tests.mutants.mutant import Mutant, replaced

DEPENDENTS = "tests/jobs/test_dependents.py"
PIPELINES = "tests/jobs/test_pipelines.py"

_launch_following = endings.launch_following
_told_of = moves.told_of
_counted = itertools.count(1)


def launch_after_anything(repo: Repository, final: Record, **more: bool) -> None:
    _launch_following(repo, final.evolve(state=State.COMPLETED), **more)


def any_run_id(root: str, number: int) -> str:
    return f"{root}.{number}.{next(_counted)}"


def told_again(record: Record, end: Awaited, *, nonce: str) -> Record | None:
    forgetful = record.evolve(met=[one for one in record.met if one.job_id != end.job_id])
    return _told_of(forgetful, end, nonce=nonce)


def write_over(repo: Repository, found: Stored[Record], changed: Record) -> bool:
    repo.create_entry(changed)
    repo.store.put(changed.own_key(), changed.encode())
    return True


def end_that_ever_was(repo: Repository, job_id: str) -> Awaited | None:
    """The first that the cells show, whatever came after."""
    ends = sorted(repo.cells(job_id).ends)
    cell = repo.find_end(job_id, ends[0]) if ends else None
    return None if cell is None else moves.ended_as(cell.record)


MUTANTS = (
    Mutant(
        "who submits looks for no end",
        "Who writes a job that waits looks for ends afterwards.",
        f"{DEPENDENTS}::test_a_job_whose_parents_have_ended_already_does_not_wait",
        replaced(submission, "look_for_ends", lambda *_: None),
    ),
    Mutant(
        "who settles tells nobody",
        "Whoever settles an end tells those that wait for it.",
        f"{DEPENDENTS}::test_a_job_waits_until_another_has_completed",
        replaced(endings, "tell_dependents", lambda *_: None),
    ),
    Mutant(
        "what was told is told again",
        "What a job was told first of another's end stays.",
        f"{DEPENDENTS}::test_who_tells_late_of_an_earlier_end_changes_nothing",
        replaced(moves, "told_of", told_again),
    ),
    Mutant(
        "an end counts though somebody has undone it",
        "Who tells how a job has ended looks whether it stays at that.",
        f"{DEPENDENTS}::test_an_end_that_somebody_has_undone_is_told_to_nobody",
        replaced(dependents, "find_ended", end_that_ever_was),
        {"when": AfterWhen.ANY},
    ),
    Mutant(
        "who tells writes over what others wrote",
        "A job that waits is changed by a replace of the record that was read.",
        f"{DEPENDENTS}::test_of_two_who_tell_at_once_both_are_heard",
        replaced(dependents, "replace_queued", write_over),
    ),
    Mutant(
        "what waits is claimed",
        "Nobody claims what waits for other jobs.",
        f"{DEPENDENTS}::test_a_job_waits_until_another_has_completed",
        replaced(Record, "is_due", lambda *_: True),
    ),
    Mutant(
        "resumed jobs look for no end",
        "Who takes a job that waits out of its rest looks for ends afterwards.",
        f"{DEPENDENTS}::test_a_job_that_was_paused_while_it_waited_waits_on",
        replaced(endings, "look_for_ends", lambda *_: None),
    ),
    Mutant(
        "nobody looks again for ends",
        "Repair looks for ends of which a queued job that waits was not told.",
        f"{DEPENDENTS}::test_who_retries_what_waits_and_dies_leaves_it_not_waiting_for_ever",
        replaced(queue_index, "look_again", lambda *_: None),
        {"at": 10, "applied": False},
    ),
    Mutant(
        "an entry that is ahead of its record is taken for a wrong one",
        "The entry of a job that is just let go is left to who lets it go.",
        f"{DEPENDENTS}::test_nobody_takes_the_entry_of_a_job_that_is_just_let_go",
        replaced(queue_index, "_may_be_ahead", lambda *_: False),
        {"mends": False},
    ),
    Mutant(
        "who deletes a job tells nobody",
        "Who deletes a job tells those that still wait for it.",
        f"{DEPENDENTS}::test_a_parent_that_is_deleted_before_anybody_was_told_leaves_nobody_waiting",
        replaced(deletion, "tell_dependents", lambda *_: None),
    ),
    Mutant(
        "steps follow whatever came before",
        "A step follows a job that has completed, and no other.",
        f"{PIPELINES}::test_nothing_follows_what_did_not_complete",
        replaced(endings, "launch_following", launch_after_anything),
        {"verdict": Verdict.FAILED},
    ),
    Mutant(
        "steps are launched under any run",
        "A step is launched under a run id that follows from its root's.",
        f"{PIPELINES}::test_settling_again_launches_nothing_twice",
        replaced(pipelines, "step_run_id", any_run_id),
    ),
    Mutant(
        "steps follow what was to be cancelled",
        "Nothing follows a job of which a cancel was asked.",
        f"{PIPELINES}::test_nothing_follows_a_root_that_was_to_be_cancelled_and_completes_all_the_same",
        replaced(launching, "_is_cancelled", lambda *_: False),
        {"whole": False},
    ),
    Mutant(
        "any run is a step's",
        "A run that has the id of a step, and is another's, is no step.",
        f"{PIPELINES}::test_a_run_that_has_the_id_of_a_step_holds_the_pipeline_up_and_nothing_else",
        replaced(pipelines, "is_of_step", lambda *_: True),
        {"commands": ["a"]},
    ),
)
