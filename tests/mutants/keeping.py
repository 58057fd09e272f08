"""What goes for its age, without one of the rules that keep it."""

from __future__ import annotations

from stado.core import keys, output_sizes
from stado.core.records import Expired, Record
from stado.core.retention import Keeps
from stado.core.states import Leftover, State
from stado.core.usage import Use
from stado.jobs import artifacts, expiring, retention, taking
from stado.jobs.repository import Repository
from tests.mutants.mutant import Mutant, replaced

RETENTION = "tests/jobs/test_retention.py"
PUBLISHES = f"{RETENTION}::test_of_a_publish_and_retention_none_leaves_a_version_without_files"
SUBMITS = (
    f"{RETENTION}::test_of_a_submission_and_retention_none_is_acknowledged_whose_input_is_gone"
)
OUTPUTS = {"kind": Leftover.OUTPUTS}


def find_no_mark(repo: Repository, kind: Leftover, job_id: str, *, epoch: int) -> Expired | None:
    return None


def keep_no_output(repo: Repository, job_id: str) -> Keeps | None:
    return None


def keep_no_checkpoints(record: Record) -> Keeps | None:
    return None


def take_unknown_for_nothing(use: Use) -> int | None:
    return use.output_bytes or 0


def of_the_first_epoch(key: str) -> int | None:
    return 1


def count_all_that_ended(repo: Repository, key: str) -> bool:
    stored = repo.find_run(keys.run_of_key(keys.run_of_taken(key)))
    if stored is None:
        return True
    base = stored.value.base_id
    return not any(
        list(repo.walk_records(state, beginning=base)) for state in State if state.terminal
    )


MUTANTS = (
    Mutant(
        "a publisher looks for no mark",
        "Who publishes an output writes so first, and looks then whether it is to go.",
        PUBLISHES,
        replaced(artifacts, "find_expired", find_no_mark),
        OUTPUTS,
    ),
    Mutant(
        "who publishes is not asked after the mark",
        "An output is marked first, and then it is asked who uses it.",
        PUBLISHES,
        replaced(expiring, "keeps_outputs", keep_no_output),
        OUTPUTS,
    ),
    Mutant(
        "a submitter looks for no mark",
        "Who takes an output along writes so first, and looks then whether it is to go.",
        SUBMITS,
        replaced(taking, "find_expired", find_no_mark),
        OUTPUTS,
    ),
    Mutant(
        "what a job that failed took along goes",
        "An output stays as long as a job that takes it along may be retried.",
        f"{RETENTION}::test_it_goes_once_all_that_take_it_along_have_completed_or_are_deleted",
        replaced(taking, "_counts", count_all_that_ended),
    ),
    Mutant(
        "checkpoints of what failed go",
        "Checkpoints stay as long as a retry may go on from them.",
        f"{RETENTION}::test_a_retry_meanwhile_loses_nothing",
        replaced(retention, "keeps_checkpoints", keep_no_checkpoints),
    ),
    Mutant(
        "the log of a later epoch goes",
        "Only what epochs up to the one that had ended left goes.",
        f"{RETENTION}::test_a_retry_meanwhile_loses_nothing",
        replaced(keys, "epoch_of_log", of_the_first_epoch),
    ),
    Mutant(
        "what is not known of an output is taken for nothing",
        "Sizes that are not known are counted and told.",
        "tests/jobs/test_retention_by_size.py"
        "::test_unknown_sizes_are_told_and_go_in_their_turn_and_only_then",
        replaced(output_sizes, "size_of", take_unknown_for_nothing),
    ),
)
