"""A store that answers in a tenth of a second: what is sent to it one after another, and what at
once, decides how long people and workers wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from stado.core.admission import Offer
from stado.core.records import Deployment, Phase, Proof
from stado.core.spec import Spec, make_request
from stado.errors import Exists
from stado.jobs.claim import Claimant, claim
from stado.jobs.deployments import make_deployment
from stado.jobs.life import LifeSigns
from stado.jobs.repository import Repository
from stado.jobs.submit import submit
from stado.ports import Tasks
from stado.storage.memory import MemoryStore
from stado.storage.port import Version
from stado.storage.s3 import CONCURRENT_CREATES
from stado.system.clock import LiveClock
from stado.system.entropy import LiveEntropy
from stado.system.tasks import LiveTasks
from stado_agent.guidance import Guidance
from stado_agent.supply import Supply
from tests.jobs.actors import GuardedStore

LATENCY_SECONDS = 0.1
JOBS = 200
WORKERS = 20
STARTS = 80
"""Of a batch of 1,000 and 50 workers the fifth part, and two."""


class FarStore(GuardedStore):
    """Each request takes its time, and many creates go as the stores of clouds do them."""

    def __init__(self, memory: MemoryStore, tasks: Tasks) -> None:
        super().__init__(memory, before=lambda *_: time.sleep(LATENCY_SECONDS))
        self._tasks = tasks

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> list[Version | None]:
        return self._tasks.map(self._create_or_none, items, limit=CONCURRENT_CREATES)

    def _create_or_none(self, item: tuple[str, bytes]) -> Version | None:
        try:
            return self.create(*item)
        except Exists:
            return None


@pytest.fixture
def repo() -> Repository:
    clock, tasks, entropy = LiveClock(), LiveTasks(), LiveEntropy()
    memory = MemoryStore(clock, tasks)
    proof = Proof(create_if_absent=True, compare_and_swap=True, conditional_delete=True)
    deployment: Deployment = make_deployment(
        memory, entropy=entropy, proof=proof, lease_seconds=120, by="operator"
    )[0]
    far = FarStore(memory, tasks)
    return Repository(far, deployment, clock=clock, entropy=entropy, tasks=tasks)


def test_a_batch_is_submitted_and_started_soon_on_a_store_that_is_far_away(
    repo: Repository,
) -> None:
    """A76: 1,000 jobs within 15 s, and 50 workers that start 20 jobs a second: here a fifth of
    the jobs in a fifth of the time, and a job a worker in 2.5 s."""
    request = make_request(["true"] * JOBS, Spec(command=""), batch=True)
    began = time.monotonic()
    submit(repo, run_id="batch", request=request, submitter="ann")
    assert time.monotonic() - began < 3.0
    started: list[float] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        name = f"host-{number}"
        supply = Supply(repo, Guidance(repo, consumer=name, incarnation="1"), poll_seconds=0.5)
        while len(started) < STARTS:
            entry = supply.next_fitting(Offer(1000, 1024), skip=lambda _: False)
            if entry is None:
                time.sleep(0.05)
                continue
            claimed = claim(repo, entry, Claimant(name, "1", name))
            if claimed is None:
                supply.missed(entry)
                continue
            LifeSigns(repo, claimed.record).beat(Phase.RUNNING, repo.now())
            with lock:
                started.append(time.monotonic())

    began = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    rate = STARTS / (sorted(started)[STARTS - 1] - began)
    assert rate > 20 * WORKERS / 50
