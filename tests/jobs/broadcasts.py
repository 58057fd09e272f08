"""What agents say of themselves, without any."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import Capacity, JobReport
from stado.jobs.claim import Claimant, Claimed
from tests.jobs.world import ALICE, TICK, World


class Agent:
    """What an agent broadcasts of the jobs that it runs."""

    def __init__(self, world: World, claimant: Claimant = ALICE) -> None:
        self._world = world
        self._claimant = claimant
        self._counter = 0
        self.signs = 0

    def broadcast(self, *jobs: Claimed) -> None:
        self._counter += 1
        capacity = Capacity(
            consumer=self._claimant.consumer,
            incarnation=self._claimant.incarnation,
            host=self._claimant.host,
            at=self._world.clock.now(),
            counter=self._counter,
            broadcast_seconds=TICK,
            cpu_total=4,
            cpu_free=4,
            memory_total_gb=4,
            memory_free_gb=4,
            disk_free_gb=4,
            version="1",
            jobs=[
                JobReport(job_id=job.record.id, epoch=job.record.epoch, signs=self.signs)
                for job in jobs
            ],
        )
        self._world.store.put(keys.capacity(self._claimant.consumer), capacity.encode())
