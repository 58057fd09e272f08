"""A bucket and side effects that are all right, for tests that break one thing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stado.core import keys
from stado.core.documents import AnyDocument
from stado.core.records import EndCell, Ending, LogAccount
from stado.core.spec import Spec
from stado.core.states import Reason, Verdict
from stado.jobs.claim import Claimed
from stado.jobs.endings import give_verdict, settle, settle_own
from stado.jobs.log_segments import write_segment
from stado.jobs.outputs import OutputPublisher
from tests.chaos.checker import check
from tests.chaos.evidence import collect, job_ids_of
from tests.chaos.ledger import Ledger
from tests.chaos.plan import Job, Work
from tests.jobs.fakes import START
from tests.jobs.world import World, give_back

RUN = "chaos-0"
LOG = b"line 1\nline 2\n"
_BOOT = 1000.0


@dataclass
class Scene:
    """One job, whose command the test plays."""

    folder: Path
    verify: str | None = None
    work: Work = Work.PLAIN
    world: World = field(default_factory=World)
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.traces = self.folder / "traces"
        self.traces.mkdir(parents=True)
        job = Job(self.work, 1, 0, 0)
        spec = Spec(command="", verify=self.verify)
        self.world.submit(job.command(self.traces), run_id=RUN, spec=spec)
        run = self.world.repo.find_run(RUN)
        assert run is not None
        (self.job_id,) = job_ids_of(run.value)
        self.ledger.note_told(RUN, [self.job_id])

    # --- what happens -------------------------------------------------------------------

    def start(self) -> Claimed:
        """In the next epoch, which the command notes."""
        claimed = self.world.start()
        self.note("started", claimed.record.epoch, "-")
        return claimed

    def lose(self) -> None:
        """Its holder was not heard, and the epoch sealed."""
        self.world.clock.sleep(10)
        give_back(self.world, self.job_id)

    def complete(self, claimed: Claimed) -> None:
        epoch = claimed.record.epoch
        self.world.clock.sleep(1)
        self.note("ended", epoch, 0)
        self.leave_files(epoch)
        self.end(claimed, Verdict.COMPLETED)

    def end(
        self,
        claimed: Claimed,
        verdict: Verdict,
        reason: Reason | None = None,
        *,
        exit_code: int | None = 0,
    ) -> None:
        now = self.world.repo.now()
        ending = Ending(
            verdict=verdict,
            reason=reason,
            exit_code=exit_code,
            started_at=now,
            ended_at=now,
            by="alice",
        )
        cell, _ = give_verdict(self.world.repo, claimed.record, ending)
        if verdict is Verdict.LOST:
            settle(self.world.repo, self.job_id, claimed.record.epoch)
        else:
            settle_own(self.world.repo, cell, claimed.running_version)

    def leave_files(self, epoch: int) -> None:
        output = self.folder / f"output-{epoch}"
        output.mkdir()
        (output / "result").write_text(f"{self.job_id} {self.work}\n")
        write_segment(self.world.repo, self.job_id, epoch, 0, LOG)
        account = LogAccount(written=len(LOG), kept=len(LOG), dropped=0)
        publisher = OutputPublisher(self.world.repo, job_id=self.job_id, epoch=epoch, folder=output)
        publisher.publish(partial=False, log=account)

    def note(self, what: str, epoch: int, code: object, *, pid: int = 100) -> None:
        """As `work.sh` does, now."""
        seconds = self.world.clock.monotonic()
        wall = START.timestamp() + seconds
        with (self.traces / self.job_id).open("a") as file:
            file.write(f"{what} {epoch} {pid} {_BOOT + seconds:.2f} {wall:.6f} {code}\n")

    # --- what is broken -----------------------------------------------------------------

    def change(self, kind: type[AnyDocument], key: str, **fields: object) -> None:
        """A document, as nobody may change it."""
        stored = self.world.repo.read(kind, key).value
        self.world.store.put(key, stored.evolve(**fields).encode())

    def change_ending(self, epoch: int, **fields: Any) -> None:
        """Of a verdict, in both places that tell it."""
        cell = self.world.repo.find_end(self.job_id, epoch)
        assert cell is not None
        ending = cell.ending.evolve(**fields)
        record = cell.record.evolve(ending=ending, state=ending.verdict.state or cell.record.state)
        self.change(EndCell, keys.end_cell(self.job_id, epoch), ending=ending, record=record)

    def remove(self, key: str) -> None:
        self.world.store.delete(key, None)

    def rewrite_traces(self, old: str, new: str) -> None:
        path = self.traces / self.job_id
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    # --- what is found ------------------------------------------------------------------

    def violated(self) -> set[str]:
        """The names of the checks that find something."""
        evidence = collect(self.world.repo, self.traces, self.ledger)
        return {violation.check for violation in check(evidence)}


def completed(folder: Path, *, losses: int = 0, **how: object) -> Scene:
    """A job that completed after it was lost so many times."""
    scene = Scene(folder, **how)  # type: ignore[arg-type]
    for _ in range(losses):
        scene.start()
        scene.lose()
    scene.complete(scene.start())
    return scene
