"""What deciding costs: an agent's look at a long queue, a coordinator's tick over a large fleet,
and how often many agents at one queue are in each other's way.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from stado.core import keys
from stado.core.admission import Card, Offer
from stado.core.moves import first_record
from stado.core.order import ReadyEntry, entry_key
from stado.core.records import Capacity, JobReport, Phase, RunRecord
from stado.core.spec import Request, Spec, make_request
from stado.core.states import State
from stado.jobs.assignments import Assigner
from stado.jobs.capacity import write_capacity
from stado.jobs.claim import Claimant, claim
from stado.jobs.life import LifeSigns
from stado.jobs.queue_index import read_page
from stado.jobs.repository import Repository
from stado.jobs.submit import submit
from stado.jobs.upkeep import Passes
from stado.storage.memory import MemoryStore
from stado.storage.observe import CountingStore, Requests
from stado.storage.port import Store, walk
from stado_agent.guidance import Guidance
from stado_agent.supply import Supply
from tests.bench.deployment import Bench, bench_deployment
from tests.bench.figures import Figure

_CARD_MIB = 80 * 1024
_DECISIONS = 7
_HOSTS = 200
_RUN_TIMES = 20
"""Kinds of jobs that wait, by how long they run."""

_RUN_SECONDS = 0.5
_BUSY = Spec(command="", cpu=1)


def measure(folder: Path, *, quick: bool) -> list[Figure]:
    return [
        *_deciding(folder / "deciding", 2_000 if quick else 10_000),
        *_ticking(folder / "ticking", *((1_000, 100) if quick else (10_000, 1_000))),
        *_sharing(folder / "sharing", *((16, 300) if quick else (64, 2_000))),
    ]


def _counting(bench: Bench, store: Store | None = None) -> tuple[Repository, CountingStore]:
    repo = bench.repo
    counted = CountingStore(store or repo.store, repo.tasks)
    own = Repository(
        counted, repo.deployment, clock=repo.clock, entropy=repo.entropy, tasks=repo.tasks
    )
    return own, counted


def _supply(repo: Repository, consumer: str) -> Supply:
    return Supply(repo, Guidance(repo, consumer=consumer, incarnation="1"), poll_seconds=0.2)


# --- one agent, a long queue --------------------------------------------------------------


def _deciding(folder: Path, queued: int) -> list[Figure]:
    """Of a host with eight cards, none of which is free, at a queue of jobs that all want some: it
    looks at each of them. The floor is the same listing, of which nothing is read."""
    with bench_deployment(folder) as bench:
        memory = MemoryStore(bench.repo.clock, bench.repo.tasks)
        for key in _entry_keys(queued, bench.repo):
            memory.create(key, b"")
        repo, counted = _counting(bench, memory)
        cards = tuple(
            Card(f"GPU-{n}", "a100-sxm4-80gb", _CARD_MIB, 0, taken=True) for n in range(8)
        )
        offer = Offer(64_000, 1 << 19, disk_mib=1 << 20, cards=cards)
        listing, deciding = [], []
        for _ in range(_DECISIONS):
            began = time.process_time()
            listed = sum(1 for _ in walk(memory, keys.READY))
            listing.append(time.process_time() - began)
            before, began = counted.snapshot(), time.process_time()
            found = Supply(
                repo, Guidance(repo, consumer="bench", incarnation="1"), poll_seconds=1
            ).next_fitting(offer, skip=lambda _: False)
            deciding.append(time.process_time() - began)
            made = counted.since(before)
    assert (listed, found) == (queued, None)
    cost = (min(deciding) - min(listing)) * 1000
    return [
        Figure(f"a decision among {queued:,} jobs and 8 cards", cost, "ms of CPU", 50.0),
        Figure("  the listing of their names, apart", min(listing) * 1000, "ms of CPU"),
        Figure("  documents read for jobs that do not fit", made.reads, "requests", 0),
    ]


def _entry_keys(queued: int, repo: Repository) -> Iterator[str]:
    dice = random.Random(7)
    for number in range(queued):
        spec = _BUSY.evolve(
            command="true",
            cpu=dice.choice((1, 2, 4, 8)),
            memory_gb=dice.choice((4, 8, 16, 64)),
            gpus=dice.choice((1, 2, 4, 8)),
            gpu_type=dice.choice((None, "a100", "h100")),
            priority=dice.choice((0, 0, 0, 5)),
        )
        run = _run_of(make_request(["true"], spec, batch=False), repo, number)
        yield entry_key(first_record(run, job_id=f"{'z' * 16}-{number:05d}", spec=spec))


def _run_of(request: Request, repo: Repository, number: int) -> RunRecord:
    return RunRecord(
        run_id=f"run-{number}",
        digest=request.digest(),
        request=request,
        base_id="z" * 16,
        count=1,
        submitter="bench",
        submitted_at=repo.now() + timedelta(milliseconds=number),
        token=repo.entropy.token(),
    )


# --- one coordinator, a large fleet ----------------------------------------------------------


def _ticking(folder: Path, queued: int, running: int) -> list[Figure]:
    """The second tick, assignments included, and the same of a fleet with a tenth of the queue: its
    price follows what runs, and not what waits."""
    seconds, requests = _tick(folder / "large", queued, running)
    _, fewer = _tick(folder / "small", queued // 10, running)
    title = f"a tick with {queued:,} queued, {running:,} running, {_HOSTS} hosts"
    more = (_total(requests) - _total(fewer)) / max(1, _total(fewer))
    return [
        Figure(title, seconds, "s", 3.0),
        Figure("  requests", _total(requests), "requests", 4.0 * (running + _HOSTS)),
        Figure("  more than with a tenth of the queue", 100 * more, "%", 25.0),
    ]


def _total(requests: Requests) -> int:
    return sum(requests.counts.values())


def _tick(folder: Path, queued: int, running: int) -> tuple[float, Requests]:
    with bench_deployment(folder) as bench:
        bench.submit(["true"] * running)
        entries = read_all(bench.repo)
        for number, entry in enumerate(entries):
            _start(bench.repo, entry, f"host-{number % _HOSTS}")
        for number in range(_HOSTS):
            _report(bench.repo, f"host-{number}", entries[number::_HOSTS])
        for kind in range(_RUN_TIMES):
            spec = Spec(command="", runtime_seconds_estimate=60 * (kind + 1), priority=kind % 2)
            request = make_request(["true"] * (queued // _RUN_TIMES), spec, batch=True)
            submit(bench.repo, run_id=f"kind-{kind}", request=request, submitter="bench")
        repo, counted = _counting(bench)
        passes = Passes(repo, by="bench", turn_seconds=repo.deployment.tick_seconds)
        assigner = Assigner(repo, by="bench")
        passes.tick()
        assert assigner.turn().written
        before, began = counted.snapshot(), time.monotonic()
        passes.tick()
        assigner.turn()
        return time.monotonic() - began, counted.since(before)


def read_all(repo: Repository) -> list[ReadyEntry]:
    entries: list[ReadyEntry] = []
    after: str | None = ""
    while after is not None:
        page = read_page(repo, start_after=after)
        entries += page.entries
        after = page.next_after
    return entries


def _start(repo: Repository, entry: ReadyEntry, consumer: str) -> None:
    claimed = claim(repo, entry, Claimant(consumer, "1", consumer))
    assert claimed is not None
    assert LifeSigns(repo, claimed.record).beat(Phase.RUNNING, repo.now())


def _report(repo: Repository, consumer: str, entries: list[ReadyEntry]) -> None:
    jobs = [JobReport(job_id=one.job_id, epoch=one.epoch, signs=1) for one in entries]
    stated: dict[str, Any] = {"cpu_total": 64, "cpu_free": 8, "memory_total_gb": 256}
    write_capacity(
        repo,
        Capacity(
            consumer=consumer,
            incarnation="1",
            host=consumer,
            at=repo.now(),
            counter=1,
            broadcast_seconds=repo.deployment.tick_seconds,
            memory_free_gb=32,
            disk_free_gb=100,
            jobs=jobs,
            version="bench",
            **stated,
        ),
    )


# --- many agents, one queue -------------------------------------------------------------------


def _sharing(folder: Path, agents: int, jobs: int) -> list[Figure]:
    """Threads that take jobs as agents do, one at a time, each of which runs for half a second."""
    with bench_deployment(folder) as bench:
        for priority in (0, 5, 9):
            request = make_request(
                ["true"] * (jobs // 3), _BUSY.evolve(priority=priority), batch=True
            )
            submit(bench.repo, run_id=f"p{priority}", request=request, submitter="bench")
        taking = _Taking(bench.repo, jobs // 3 * 3)
        threads = [
            threading.Thread(target=taking.work, args=(f"host-{number}",))
            for number in range(agents)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = len(bench.repo.store.list(keys.prefix(State.QUEUED), limit=1000))
    assert (left, taking.claimed) == (0, jobs // 3 * 3)
    return [
        Figure(
            f"claims in vain of {agents} agents at {jobs:,} jobs",
            taking.missed / taking.claimed,
            "a job",
            0.3,
        ),
        Figure("  claims of one behind a more urgent one", taking.out_of_order, "claims", 0),
    ]


class _Taking:
    """What all of them have taken."""

    def __init__(self, repo: Repository, jobs: int) -> None:
        self._repo = repo
        self._jobs = jobs
        self._lock = threading.Lock()
        self.claimed = 0
        self.missed = 0
        self.out_of_order = 0

    def work(self, consumer: str) -> None:
        guidance = Guidance(self._repo, consumer="bench", incarnation="1")
        supply = Supply(self._repo, guidance, poll_seconds=0.2)
        claimant = Claimant(consumer, "1", consumer)
        offer = Offer(1_000, 1_024)
        tried: set[str] = set()
        while self.claimed < self._jobs:
            entry = supply.next_fitting(offer, skip=lambda _: False)
            if entry is None:
                time.sleep(min(0.05, supply.seconds_to_wait() + 0.001))
                continue
            tried.add(entry.name)
            more_urgent = any(
                one.priority > entry.priority
                for one in supply.waiting(skip=lambda one: one.name in tried)
            )
            won = claim(self._repo, entry, claimant) is not None
            if not won:
                supply.missed(entry)
            with self._lock:
                self.claimed += won
                self.missed += not won
                self.out_of_order += more_urgent
            if won:
                time.sleep(_RUN_SECONDS)
