"""A deployment in memory, with the few words that the tests use to speak of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from stado.core import keys
from stado.core.order import ReadyEntry, entry_key, parse_entry
from stado.core.records import Deployment, Ending, Phase, Proof, Record
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec, make_request
from stado.core.states import Reason, State, Verdict
from stado.core.usage import ran_until
from stado.errors import NotFound
from stado.jobs.claim import ANY_PLACE, Claimant, Claimed, Place, claim
from stado.jobs.deployments import make_deployment
from stado.jobs.endings import give_verdict, settle, settle_own
from stado.jobs.finding import Found, find_job
from stado.jobs.life import LifeSigns, seal_epoch
from stado.jobs.logs import LogReader
from stado.jobs.queue_index import Repair, read_page
from stado.jobs.reaping import Reaper, ReapReport
from stado.jobs.repository import Repository
from stado.jobs.submit import submit
from stado.storage.memory import MemoryStore
from stado.storage.port import Entry, Store, walk
from tests.jobs.fakes import FakeClock, FakeEntropy, InlineTasks

LEASE = 120.0
TICK = 15.0
ALICE = Claimant("alice", "alice-1", "host-a")
BOB = Claimant("bob", "bob-1", "host-b")


@dataclass
class World:
    """One store and one clock; everybody in it has a repository of their own or shares one."""

    clock: FakeClock = field(default_factory=FakeClock)
    entropy: FakeEntropy = field(default_factory=FakeEntropy)
    tasks: InlineTasks = field(default_factory=InlineTasks)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock, self.tasks)
        self.deployment: Deployment = make_deployment(
            self.store,
            entropy=self.entropy,
            proof=Proof(create_if_absent=True, compare_and_swap=True, conditional_delete=True),
            lease_seconds=LEASE,
            by="operator",
        )[0]
        self.repo = self.repo_over(self.store)
        self._runs = itertools.count(1)

    def repo_over(self, store: Store) -> Repository:
        return Repository(
            store, self.deployment, clock=self.clock, entropy=self.entropy, tasks=self.tasks
        )

    # --- doing --------------------------------------------------------------------------

    def submit(self, *commands: str, run_id: str | None = None, spec: Spec | None = None) -> str:
        """The base id of a submission; more than one command makes a batch."""
        request = make_request(
            list(commands) or ["true"], spec or Spec(command=""), batch=len(commands) > 1
        )
        run_id = run_id or f"run-{next(self._runs)}"
        return submit(self.repo, run_id=run_id, request=request, submitter="ada").base_id

    def start(self, claimant: Claimant = ALICE) -> Claimed:
        """Claims the head of the queue and beats once."""
        claimed = self.claim(claimant)
        assert claimed is not None
        assert LifeSigns(self.repo, claimed.record).beat(Phase.RUNNING, self.clock.now())
        return claimed

    def claim(self, claimant: Claimant = ALICE) -> Claimed | None:
        return claim_head(self.repo, claimant)

    def claimed_of(
        self, job_id: str, settings: DeploymentSettings | None = None, place: Place = ANY_PLACE
    ) -> Claimed:
        """Claims this very job."""
        entry = entry_of(self.record(State.QUEUED, job_id))
        claimed = claim(self.repo, entry, ALICE, settings, place)
        assert claimed is not None
        return claimed

    def end(self, claimed: Claimed, verdict: Verdict = Verdict.COMPLETED) -> Record:
        return end(self.repo, claimed, verdict)

    def lose(self, reaper: Reaper, turns: int = 24) -> ReapReport:
        """Lets two leases pass without a sign from anybody; what the last turn that reaped did,
        or else the last turn."""
        for _ in range(turns):
            report = reaper.turn()
            if report.reaped:
                return report
            self.clock.sleep(TICK)
        return report

    # --- looking ------------------------------------------------------------------------

    def entries(self) -> list[ReadyEntry]:
        return read_page(self.repo).entries

    def names(self, prefix: str) -> list[str]:
        return [entry.key for entry in self.listed(prefix)]

    def listed(self, prefix: str) -> Iterator[Entry]:
        return walk(self.store, prefix)

    def states(self, job_id: str) -> set[State]:
        """The prefixes that hold the job, as they are."""
        return {state for state in State if self.has(keys.record(state, job_id))}

    def has(self, key: str) -> bool:
        try:
            self.store.head(key)
        except NotFound:
            return False
        return True

    def find(self, job_id: str) -> Found:
        found = find_job(self.repo, job_id)
        assert found is not None
        return found

    def record(self, state: State, job_id: str) -> Record:
        found = self.repo.find_record(state, job_id)
        assert found is not None
        return found.value


def claim_head(repo: Repository, claimant: Claimant) -> Claimed | None:
    """The first claim that succeeds, from the head of the queue."""
    for entry in read_page(repo).entries:
        claimed = claim(repo, entry, claimant)
        if claimed is not None:
            return claimed
    return None


def end(repo: Repository, claimed: Claimed, verdict: Verdict = Verdict.COMPLETED) -> Record:
    """What a supervisor does when its command has ended: the verdict, then settle."""
    now = repo.now()
    ending = Ending(
        verdict=verdict, exit_code=0, started_at=now, ended_at=now, by=_consumer(claimed)
    )
    cell, ours = give_verdict(repo, claimed.record, ending)
    if ours:
        settle_own(repo, cell, claimed.running_version)
    else:
        settle(repo, claimed.record.id, claimed.record.epoch)
    return cell.record


def _consumer(claimed: Claimed) -> str:
    assert claimed.record.holder is not None
    return claimed.record.holder.consumer


def heal(world: World, job_id: str) -> list[tuple[str, int]]:
    """Faults are over: repair and reaper take turns, and an agent that came new runs what is
    there. Returns which epochs it started."""
    started: list[tuple[str, int]] = []
    repair, reaper = Repair(world.repo), Reaper(world.repo, by="coordinator")
    agent = Claimant("carol", "carol-1", "host-c")
    for _ in range(40):
        repair.turn()
        reaper.turn()
        claimed = world.claim(agent)
        if claimed is not None:
            if LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, world.clock.now()):
                started.append((job_id, claimed.record.epoch))
            world.end(claimed)
        if _is_healed(world, job_id):
            return started
        world.clock.sleep(TICK)
    raise AssertionError(
        f"not healed: {world.states(job_id)}, index {world.names(keys.READY)}, "
        f"cells {world.names(keys.cells(job_id))}"
    )


def _is_healed(world: World, job_id: str) -> bool:
    states = world.states(job_id)
    return len(states) == 1 and all(s.at_rest for s in states) and not world.names(keys.READY)


def entry_of(record: Record) -> ReadyEntry:
    parsed = parse_entry(entry_key(record).removeprefix(keys.READY))
    assert parsed is not None
    return parsed


def stored_log(repo: Repository, job_id: str, epoch: int) -> bytes:
    """The bytes of a log that the store has, in order."""
    pieces = LogReader(repo, job_id, epoch).read_new()
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def give_back(world: World, job_id: str) -> None:
    """As a reaper does with a holder that it has not heard for a lease."""
    record = world.find(job_id).record
    last = world.repo.find_heartbeat(job_id)
    seal = seal_epoch(world.repo, record, last, by="coordinator")
    assert seal is not None
    now = world.clock.now()
    ending = Ending(
        verdict=Verdict.LOST,
        reason=Reason.LEASE_EXPIRED,
        started_at=now,
        ended_at=now,
        ran=ran_until(record, seal.heard_at, started_at=seal.started_at, estimated=True),
        by="coordinator",
    )
    give_verdict(world.repo, record, ending)
    settle(world.repo, record.id, record.epoch)
