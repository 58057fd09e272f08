"""What looking costs once very many jobs have ended: lists, usage and cost, on a directory and on a
bucket; and the compaction that makes it so.

What is there of each job is what lists, usage and cost read: the use and the record at rest, as the
moves of the product compute them from a verdict, and in bulk. Nothing was submitted and no command
ran; verdicts themselves, logs and outputs are not written.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from stado.core import ids, moves
from stado.core.records import EndCell, Ending, Holder, Ran, Record, RunRecord
from stado.core.spec import Spec, make_request
from stado.core.states import Reason, Verdict
from stado.core.usage import use_key, use_of
from stado.jobs.ledger import Compaction, look_at_ledger
from stado.jobs.repository import Repository
from stado.jobs.rest_rows import RestRowsKept
from stado.settings import Settings
from tests.bench.deployment import Bench, bench_deployment
from tests.bench.figures import Figure

_SECONDS_MAX = 2.0
"""Of a command, its start included."""

_DAYS = 28
_BATCH = 100
_KINDS = ("1x a100-sxm4-80gb", "4x h100-sxm5-80gb", "cpu")
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "status": ("status",),
    "status of 250 rows": ("status", "--limit", "250"),
    "usage": ("usage", "--org"),
    "usage by day": ("usage", "--org", "--by", "day"),
    "cost report": ("cost", "report"),
    "schedule list": ("schedule", "list"),
}


def measure(
    folder: Path,
    *,
    jobs: int,
    settings: Settings | None = None,
    environment: dict[str, str] | None = None,
) -> list[Figure]:
    with bench_deployment(folder, settings, environment) as bench:
        began = time.monotonic()
        _end_jobs(bench.repo, jobs)
        writing = time.monotonic() - began
        before = {name: _seconds(bench, words) for name, words in _COMMANDS.items()}
        began = time.monotonic()
        _compact(bench.repo, jobs)
        compacting = time.monotonic() - began
        after = {name: _seconds(bench, words) for name, words in _COMMANDS.items()}
    return [
        Figure(f"what {jobs:,} ended jobs leave, written", writing, "s"),
        Figure("compaction of all of them", compacting, "s"),
        Figure("  of one epoch", compacting / jobs * 1000, "ms"),
        *(
            figure
            for name in _COMMANDS
            for figure in (
                Figure(name, after[name], "s", _SECONDS_MAX),
                Figure("  before the compaction", before[name], "s"),
            )
        ),
    ]


def _compact(repo: Repository, jobs: int) -> None:
    compaction = Compaction(repo, by="bench")
    while compaction.turns(600).behind:
        pass
    RestRowsKept(repo, missing_max=1).turn()
    seen = look_at_ledger(repo)
    assert seen.rows + seen.waiting == jobs, seen


def _seconds(bench: Bench, words: tuple[str, ...]) -> float:
    """The faster of two."""
    times = []
    for _ in range(2):
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "stado.cli.entry", *words],
            env={**os.environ, **bench.environment},
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=300,
        )
        times.append(time.monotonic() - began)
    return min(times)


# --- jobs that have ended -----------------------------------------------------------------


def _end_jobs(repo: Repository, count: int) -> None:
    numbers = range(0, count, _BATCH)
    repo.tasks.map(lambda first: _end_batch(repo, first, count), numbers, limit=4)


def _end_batch(repo: Repository, first: int, count: int) -> None:
    dice = random.Random(first)
    ended_at = repo.now() - timedelta(days=_DAYS * (1 - first / count), minutes=5)
    base = ids.new_base(
        ended_at, f"{first:06d}".translate(str.maketrans("0123456789", "abcdefghij"))
    )
    size = min(_BATCH, count - first)
    objects: list[tuple[str, bytes]] = []
    model = dice.choice(("resnet", "bert", "walker", None))
    spec = Spec(command="", model=model, gpus=1, tags=["bench"])
    request = make_request(["python train.py --seed $N"] * size, spec, batch=True)
    run = RunRecord(
        run_id=f"history-{first}",
        digest=request.digest(),
        request=request,
        base_id=base,
        count=size,
        submitter=f"user-{dice.randrange(20)}",
        submitted_at=ended_at,
        token=repo.entropy.token(),
    )
    for number in range(size):
        job_id = ids.member(base, number + 1, size)
        record = moves.first_record(run, job_id=job_id, spec=spec.evolve(command="true"))
        objects += _ended(repo, record, ended_at + timedelta(seconds=number), dice)
    repo.store.create_many(objects)


def _ended(
    repo: Repository, queued: Record, ended_at: datetime, dice: random.Random
) -> list[tuple[str, bytes]]:
    """What settling its verdict writes for good."""
    hardware = dice.choice(_KINDS)
    holder = Holder(
        token=repo.entropy.token(),
        consumer=f"local@host-{dice.randrange(50)}",
        incarnation="bench",
        host="host",
        claimed_at=ended_at,
        lease_seconds=repo.deployment.lease_seconds,
        gpus=0 if hardware == "cpu" else int(hardware[0]),
        hardware=hardware,
    )
    running = moves.claimed(queued, holder)
    failed = dice.random() < 0.1
    ran = Ran(began_at=ended_at - timedelta(seconds=dice.uniform(1, 7200)), ended_at=ended_at)
    ending = Ending(
        verdict=Verdict.FAILED if failed else Verdict.COMPLETED,
        reason=Reason.JOB_FAILED if failed else None,
        exit_code=1 if failed else 0,
        started_at=ran.began_at,
        ended_at=ended_at,
        ran=ran,
        by=holder.consumer,
    )
    cell = EndCell(token=holder.token, ending=ending, record=moves.ended(running, ending))
    use, final = use_of(cell), moves.after(cell)
    assert use is not None
    return [(use_key(use), b""), (final.own_key(), final.encode())]
