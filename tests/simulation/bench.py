"""A world in which nothing happens by itself, for tests of checkers: what they hear of is made by
hand, by processes that execute nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stado.core import keys
from stado.core.documents import Document
from stado.core.order import entry_name, parse_entry
from stado.core.records import Ending, Heartbeat, Ran, Record
from stado.core.spec import CARDS_VARIABLE, Spec, make_request
from stado.core.states import JobType, Reason, State, Verdict
from stado.jobs.claim import Claimant, claim
from stado.jobs.endings import give_verdict, settle
from stado.jobs.life import seal_epoch
from stado.jobs.repository import Repository
from stado.jobs.submit import submit
from stado.ports import Command
from tests.jobs.fakes import InlineTasks
from tests.simulation.checkers.base import Checker
from tests.simulation.commands import Script, SimCommand
from tests.simulation.hardware import HostPlan
from tests.simulation.machine import SimEntropy, TrueClock
from tests.simulation.people import Answer
from tests.simulation.plan import Plan
from tests.simulation.process import SimProcess
from tests.simulation.world import FOLDERS, World

Result = TypeVar("Result")

LEASE = 12.0
PLAN = Plan(lease=LEASE, hosts=(HostPlan(), HostPlan()), people=1, jobs_max=0)


class Bench:
    """`kinds`: the checkers that listen."""

    def __init__(self, world: World, *kinds: type[Checker]) -> None:
        self.world = world
        world.listen(kinds)
        self.worker = world.hosts[0].new_process("supervisor")
        self.agent = world.hosts[0].new_process("agent")
        self.stranger = world.hosts[1].new_process("supervisor")
        self.judge = world.coordinator_hosts[0].new_process("coordinator")
        self.client = world.laptops[0].new_process("cli")
        self.repo = Repository(
            world.store,
            world.deployment,
            clock=TrueClock(world.kernel),
            entropy=SimEntropy(world.kernel),
            tasks=InlineTasks(),
        )

    @property
    def violation(self) -> str:
        """Empty: no rule was broken so far."""
        return str(self.world.violation or "")

    def by(self, process: SimProcess, call: Callable[[], Result]) -> Result:
        """On whose behalf the store is changed."""
        return self.world.bucket.act(process, call)

    def write(self, process: SimProcess, key: str, document: Document) -> None:
        self.by(process, lambda: self.world.store.put(key, document.encode()))

    def delete(self, process: SimProcess, key: str) -> None:
        self.by(process, lambda: self.world.store.delete(key, None))

    def wait(self, seconds: float) -> None:
        self.world.kernel.now += seconds

    # --- a job's life, as it should be --------------------------------------------------

    def submit(self, kind: JobType = JobType.JOB, *, run_id: str = "run", **stated: Any) -> Record:
        """Acknowledged. `stated`: what else its spec says."""
        request = make_request(["command"], Spec(command="", type=kind, **stated), batch=False)
        ids = self.by(
            self.client,
            lambda: submit(self.repo, run_id=run_id, request=request, submitter="ann").job_ids,
        )
        self.tell(Answer("submitted", self.world.kernel.now, run_id, tuple(ids)))
        return self.record(State.QUEUED, ids[0])

    def record(self, state: State, job_id: str) -> Record:
        return self.repo.read(Record, keys.record(state, job_id)).value

    def claim(self, queued: Record, by: SimProcess | None = None) -> Record:
        process = by or self.worker
        entry = parse_entry(entry_name(queued))
        assert entry is not None
        host = process.host.name
        claimant = Claimant(consumer=f"agent@{host}", incarnation="one", host=host)
        claimed = self.by(process, lambda: claim(self.repo, entry, claimant, self.world.settings))
        assert claimed is not None
        return claimed.record

    def beat(self, record: Record, counter: int = 1, *, by: SimProcess | None = None) -> None:
        assert record.holder is not None
        beat = Heartbeat(
            epoch=record.epoch,
            token=record.holder.token,
            counter=counter,
            by=record.holder.consumer,
            at=self.repo.now(),
        )
        self.write(by or self.worker, keys.heartbeat(record.id), beat)

    def seal(self, record: Record) -> None:
        last = self.repo.find_heartbeat(record.id)
        assert self.by(self.judge, lambda: seal_epoch(self.repo, record, last, by="judge"))

    def start(
        self,
        record: Record,
        script: Script | None = None,
        *,
        by: SimProcess | None = None,
        run: int = 1,
        cards: Sequence[str] = (),
    ) -> SimCommand:
        """A command that runs until it is told to end, and sees these cards."""
        owner = by or self.worker
        command = SimCommand(
            owner,
            script or Script(seconds=1.0),
            Command(
                name="command",
                argv=("command",),
                environment={
                    "STADO_JOB_ID": record.id,
                    "STADO_EPOCH": str(record.epoch),
                    "STADO_BODY_RUN": str(run),
                    CARDS_VARIABLE: ",".join(cards),
                },
                folder=owner.host.folder,
                sink=lambda _: None,
            ),
        )
        owner.host.commands.append(command)
        owner.commands.append(command)
        self.world.tell_start(command)
        return command

    def ending(
        self, verdict: Verdict, exit_code: int | None = None, reason: Reason | None = None
    ) -> Ending:
        now = self.repo.now()
        return Ending(
            verdict=verdict,
            reason=reason,
            exit_code=exit_code,
            started_at=None if exit_code is None else now,
            ended_at=now,
            ran=None if exit_code is None else Ran(began_at=now, ended_at=now),
            by="somebody",
        )

    def end(self, record: Record, ending: Ending, by: SimProcess | None = None) -> None:
        """The verdict, unsettled."""
        self.by(by or self.worker, lambda: give_verdict(self.repo, record, ending))

    def settle(self, record: Record, by: SimProcess | None = None) -> None:
        self.by(by or self.worker, lambda: settle(self.repo, record.id, record.epoch))

    def lose(self, record: Record) -> Record:
        """Sealed after a lease of silence, and given back: the record of the next epoch."""
        self.wait(2 * LEASE)
        self.seal(record)
        self.end(record, self.ending(Verdict.LOST, reason=Reason.LEASE_EXPIRED), self.judge)
        self.settle(record, self.judge)
        return self.record(State.QUEUED, record.id)

    # --- what people are told, and the last look ----------------------------------------

    def tell(self, answer: Answer) -> None:
        self.world.tell_answer(answer)

    def tell_record(self, record: Record, what: str = "found") -> None:
        now = self.world.kernel.now
        self.tell(Answer(what, now, job_ids=(record.id,), record=record))

    def look(self) -> None:
        """As who waits until all has come to rest."""
        for checker in self.world.checkers:
            checker.on_look()

    def look_at_the_end(self) -> None:
        self.world.check_at_end()


def changed(record: Record, **fields: object) -> Record:
    return msgspec.structs.replace(record, **fields)


@contextmanager
def made_bench(*kinds: type[Checker], plan: Plan = PLAN) -> Iterator[Bench]:
    """Leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="stado-bench-", dir=FOLDERS) as folder:
        world = World(0, Path(folder), plan=plan)
        try:
            yield Bench(world, *kinds)
        finally:
            world.kernel.close()
