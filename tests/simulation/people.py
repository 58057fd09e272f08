"""Users at their laptops: each command that they give is a process of its own, which may be killed,
and is then mostly given once more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stado.core.records import HostOrder, PriorityChange, Record
from stado.core.spec import After, Request, Spec, Step, make_request
from stado.core.states import AfterWhen, JobType, State
from stado.errors import StadoError
from stado.jobs.asking import ask_to_yield
from stado.jobs.changes import (
    cancel,
    pause,
    pause_queue,
    rerun,
    resume,
    resume_queue,
    retry,
)
from stado.jobs.deletion import delete
from stado.jobs.finding import find_job
from stado.jobs.followers import FollowerNote
from stado.jobs.host_orders import close_host, open_host, release_host
from stado.jobs.listings import newest
from stado.jobs.logs import LogReader, Piece
from stado.jobs.priority import set_priority
from stado.jobs.reaping import Reaper
from stado.jobs.status import states_of
from stado.jobs.submit import submit
from tests.simulation.commands import VERIFY
from tests.simulation.fleet import draw_needs
from tests.simulation.plan import GROUP, draw_limits, draw_rules, draw_script
from tests.simulation.process import SimHost, consumer_on

if TYPE_CHECKING:
    from stado.jobs.repository import Repository
    from tests.simulation.world import World

_LOOKS_MAX = 5
_FOLLOWS_MAX = 30


@dataclass(frozen=True)
class Answer:
    """What a use case said, and when it was asked."""

    what: str
    """submitted, found, cancelled, paused, resumed, retried, prioritized, listed, read."""
    asked_at: float
    run_id: str | None = None
    job_ids: tuple[str, ...] = ()
    record: Record | None = None
    """As it was found; None: it was said that there is no such job."""
    states: tuple[tuple[str, State], ...] = ()
    epoch: int | None = None
    """Whose log was read, from its beginning on."""
    read: tuple[tuple[int, bytes], ...] = ()
    """Its pieces, each with its place."""
    schedule: str | None = None
    """That was made, paused, resumed or removed."""
    change: PriorityChange | None = None
    """Of its priority, as it stands."""


@dataclass(frozen=True)
class _Order:
    """A submission that somebody wants, whoever gives the command and however often."""

    run_id: str
    request: Request


def placed(reader: LogReader, pieces: Iterable[Piece]) -> list[tuple[int, bytes]]:
    """What is read, each piece with its place."""
    return [(reader.offset - len(piece), piece) for piece in pieces if isinstance(piece, bytes)]


class Person:
    """Does something now and then, as long as the day lasts."""

    def __init__(self, world: World, host: SimHost, *, pause: float) -> None:
        self._world = world
        self._kernel = world.kernel
        self._host = host
        self._pause = pause
        self._unfinished: list[_Order] = []
        self.busy = False
        self._kernel.after(self._kernel.random.uniform(0, pause), self._act)

    def finish(self) -> None:
        """The day is over: what was begun is brought to an end, nothing else is done."""
        if not self.busy:
            self._act()

    def _act(self) -> None:
        if self.busy or self._host.vanished:
            return
        action = self._choose()
        if action is None:
            return
        self.busy = True
        process = self._host.new_process("cli")
        process.when_ended(self._note_end)
        process.start(lambda: self._run(action), ends=None)

    def _note_end(self) -> None:
        self.busy = False
        pause = self._kernel.random.uniform(0, self._pause)
        self._kernel.after(1.0 if self._world.healing else pause, self._act)

    def _run(self, action: Callable[[Repository], None]) -> None:
        """What the store refuses, a person sees, and mostly tries again."""
        try:
            action(self._world.open_repository(self._host))
        except StadoError as error:
            self._world.trace.note(self._host.name, f"told: {type(error).__name__} {error}")

    def _choose(self) -> Callable[[Repository], None] | None:
        dice = self._kernel.random
        if self._unfinished and (self._world.healing or dice.random() < 0.7):
            order = self._unfinished[0]
            if not self._world.healing and dice.random() < 0.1:
                self._unfinished.pop(0)  # given up: whatever has become of it
            return lambda repo: self._submit(repo, order)
        if self._world.healing:
            return None
        actions = [self._submit_new, self._look, self._cancel, self._list, self._follow]
        weights = [4, 2, 2, 1, 2]
        rare = [self._repeat, self._rerun, self._rest_queue, self._close_host]
        again = [self._pause_job, self._resume, self._retry, self._delete, self._prioritize]
        again.append(self._want_room)
        often = 2 if self._world.plan.schedules else 0
        return dice.choices(
            [*actions, *rare, *again, self._keep_schedule],
            weights=[*weights, 0.5, 0.5, 0.3, 0.3, 1, 1, 1, 0.3, 1, 1, often],
        )[0]

    # --- what they do -------------------------------------------------------------------

    def _submit_new(self, repo: Repository) -> None:
        dice, world = self._kernel.random, self._world
        count = min(dice.choice((1, 1, 1, 2, 4)), world.jobs_left)
        if count < 1:
            self._look(repo)
            return
        world.jobs_left -= count
        commands = [self._new_command() for _ in range(count)]
        spec = Spec(
            command="",
            verify=VERIFY if dice.random() < 0.2 else None,
            priority=dice.choice((0, 0, 0, 5)),
            max_lease_losses=dice.choice((None, None, 0, 1, -1)),
            type=dice.choice((JobType.JOB, JobType.JOB, JobType.TRAIN)),
            runtime_seconds_estimate=dice.choice((None, None, None, 5, 60)),
            model=dice.choice((None, None, None, "tiny")),
            after=self._draw_after(),
            group=GROUP if dice.random() < 0.3 else None,
            notify=draw_rules(self._kernel, world.plan),
            **self._draw_yields(),
            **draw_needs(self._kernel, world.plan.hosts, share=world.plan.placed),
            **self._draw_steps(),
            **draw_limits(self._kernel, world.plan, repo.now()),
        )
        if spec.verify is None and spec.type is JobType.JOB:
            spec = spec.evolve(terminates_agent=dice.random() < 0.3)
        request = make_request(commands, spec, batch=count > 1)
        order = _Order(f"run-{len(world.scripts)}", request)
        self._unfinished.append(order)
        self._submit(repo, order)

    def _draw_yields(self) -> dict[str, Any]:
        if self._kernel.random.random() < 0.6:
            return {}
        return {"yieldable": True, "max_yields": self._kernel.random.choice((None, 0, 1, 2))}

    def _new_command(self) -> str:
        scripts = self._world.scripts
        command = f"command-{len(scripts)}"
        scripts[command] = draw_script(self._kernel, self._world.plan)
        return command

    def _draw_after(self) -> list[After]:
        """Of some submissions what has to end first: one or two of the jobs that there are."""
        dice, jobs = self._kernel.random, self._world.known_jobs
        if not jobs or dice.random() >= self._world.plan.chained:
            return []
        chosen = sorted({dice.choice(jobs) for _ in range(dice.choice((1, 1, 2)))})
        return [After(job_id=job, when=dice.choice(list(AfterWhen))) for job in chosen]

    def _draw_steps(self) -> dict[str, Any]:
        dice = self._kernel.random
        if dice.random() >= self._world.plan.chained:
            return {}
        names = ("export", "eval", "tell")[: dice.choice((1, 2, 3))]
        steps = [Step(name=name, command=self._new_command()) for name in names]
        return {"then": steps, "then_parallel": dice.random() < 0.3}

    def _submit(self, repo: Repository, order: _Order) -> None:
        asked_at = self._kernel.now
        submission = submit(
            repo, run_id=order.run_id, request=order.request, submitter=self._host.name
        )
        if order in self._unfinished:
            self._unfinished.remove(order)
        self._world.known_orders.append((order.run_id, order.request))
        self._tell("submitted", asked_at, run_id=order.run_id, job_ids=submission.job_ids)

    def _repeat(self, repo: Repository) -> None:
        """By mistake, or by a script that does so."""
        if self._world.known_orders:
            run_id, request = self._kernel.random.choice(self._world.known_orders)
            self._submit(repo, _Order(run_id, request))

    def _rerun(self, repo: Repository) -> None:
        job_id = self._some_job()
        if job_id is None or self._world.jobs_left < 1:
            return
        self._world.jobs_left -= 1
        run_id = f"again-{self._world.jobs_left}"
        asked_at = self._kernel.now
        submission = rerun(repo, job_id, run_id=run_id, submitter=self._host.name)
        self._tell("submitted", asked_at, run_id=run_id, job_ids=submission.job_ids)

    def _look(self, repo: Repository) -> None:
        job_id = self._some_job()
        for _ in range(self._kernel.random.randint(1, _LOOKS_MAX)):
            if job_id is None:
                return
            self._find(repo, job_id)
            repo.clock.sleep(1.0)

    def _find(self, repo: Repository, job_id: str) -> Record | None:
        asked_at = self._kernel.now
        found = find_job(repo, job_id)
        record = found.record if found is not None else None
        self._tell("found", asked_at, job_ids=[job_id], record=record)
        return record

    def _follow(self, repo: Repository) -> None:
        """The log of an epoch, for a while, with a note beside it."""
        job_id, asked_at = self._some_job(), self._kernel.now
        record = self._find(repo, job_id) if job_id is not None else None
        if record is None:
            return
        record_id, epoch = record.id, record.epoch
        note, reader = FollowerNote(repo, record_id), LogReader(repo, record_id, epoch)
        read: list[tuple[int, bytes]] = []
        for _ in range(self._kernel.random.randint(1, _FOLLOWS_MAX)):
            over = record is None or record.state.at_rest or record.epoch > epoch
            if not over:
                note.renew_when_due()
            read += placed(reader, reader.read_rest() if over else reader.read_new())
            if over:
                break
            repo.clock.sleep(1.0)
            record = self._find(repo, record_id)
        self._tell("read", asked_at, job_ids=[record_id], epoch=epoch, read=tuple(read))

    def _list(self, repo: Repository) -> None:
        asked_at = self._kernel.now
        newest(repo, limit=5)
        job_id = self._some_job()
        if job_id is not None:
            states = states_of(repo, job_id.partition("-")[0])
            self._tell("listed", asked_at, states=tuple(states.items()))

    def _cancel(self, repo: Repository) -> None:
        """And sometimes waits until it is done, which means to reap for a silent worker."""
        job_id = self._some_job()
        if job_id is None:
            return
        asked_at = self._kernel.now
        answer = cancel(repo, job_id, by=self._host.name)
        self._tell("cancelled", asked_at, job_ids=[job_id], record=answer.record)
        if self._kernel.random.random() < 0.5 or answer.record.state.at_rest:
            return
        reaper = Reaper(repo, by=self._host.name)
        beat = repo.deployment.beat_seconds
        for _ in range(20):
            repo.clock.sleep(beat)
            record = self._find(repo, job_id)
            if record is None or record.state.at_rest:
                return
            reaper.turn_for(job_id)

    def _pause_job(self, repo: Repository) -> None:
        job_id = self._some_job()
        if job_id is None:
            return
        asked_at = self._kernel.now
        answer = pause(repo, job_id, by=self._host.name)
        self._tell("paused", asked_at, job_ids=[job_id], record=answer.record)

    def _resume(self, repo: Repository) -> None:
        """Mostly one that is paused."""
        job_id = self._some_job_in(State.PAUSED)
        if job_id is None:
            return
        asked_at = self._kernel.now
        answer = resume(repo, job_id, by=self._host.name)
        self._tell("resumed", asked_at, job_ids=[job_id], record=answer.record)

    def _retry(self, repo: Repository) -> None:
        job_id = self._some_job_in(State.FAILED, State.CANCELLED)
        if job_id is None:
            return
        asked_at = self._kernel.now
        answer = retry(repo, job_id, by=self._host.name)
        self._tell("retried", asked_at, job_ids=[job_id], record=answer.record)

    def _delete(self, repo: Repository) -> None:
        job_id = self._some_job_in(State.FAILED, State.CANCELLED, State.COMPLETED)
        if job_id is not None:
            delete(repo, job_id, by=self._host.name)

    def _prioritize(self, repo: Repository) -> None:
        job_id = self._some_job_in(State.QUEUED)
        if job_id is None:
            return
        asked_at, priority = self._kernel.now, self._kernel.random.choice((0, 5, 9))
        receipt = set_priority(repo, job_id, priority, by=self._host.name)
        self._tell(
            "prioritized",
            asked_at,
            job_ids=[job_id],
            record=receipt.record,
            change=receipt.change,
        )

    def _want_room(self, repo: Repository) -> None:
        """As an agent does for a more urgent job, or an operator who closes a host."""
        job_id = self._some_job_in(State.RUNNING)
        record = None if job_id is None else self._find(repo, job_id)
        if record is None or record.state is not State.RUNNING:
            return
        evict = self._kernel.random.random() < 0.2
        ask_to_yield(repo, record.id, record.epoch, by=self._host.name, note="", evict=evict)

    def _some_job_in(self, *states: State) -> str | None:
        """As somebody has just seen it; now and then another one, by mistake."""
        dice, jobs = self._kernel.random, self._world.known_jobs
        if dice.random() < 0.1:
            return self._some_job()
        fitting = [
            job_id for job_id in jobs if any(self._world.shows(state, job_id) for state in states)
        ]
        return dice.choice(fitting) if fitting else None

    def _rest_queue(self, repo: Repository) -> None:
        pause_queue(repo, by=self._host.name)
        repo.clock.sleep(self._kernel.random.uniform(1, 30))
        resume_queue(repo, by=self._host.name)

    def _close_host(self, repo: Repository) -> None:
        """For a while, and now and then released on the way."""
        dice, by = self._kernel.random, self._host.name
        name = consumer_on(dice.choice(self._world.hosts))
        close_host(repo, name, dice.choice(list(HostOrder)), by=by, reason=None)
        repo.clock.sleep(dice.uniform(1, 2 * self._world.plan.lease))
        open_host(repo, name, by=by)
        if dice.random() < 0.5:
            release_host(repo, name, by=by)

    def _keep_schedule(self, repo: Repository) -> None:
        from tests.simulation.timetable import keep_schedule

        keep_schedule(self._world, self._host, repo)

    def _some_job(self) -> str | None:
        jobs = self._world.known_jobs
        return self._kernel.random.choice(jobs) if jobs else None

    def _tell(
        self,
        what: str,
        asked_at: float,
        *,
        run_id: str | None = None,
        job_ids: list[str] | tuple[str, ...] = (),
        record: Record | None = None,
        states: tuple[tuple[str, State], ...] = (),
        epoch: int | None = None,
        read: tuple[tuple[int, bytes], ...] = (),
        change: PriorityChange | None = None,
    ) -> None:
        answer = Answer(what, asked_at, run_id, tuple(job_ids), record, states, epoch, read, change)
        shown = "" if record is None else f"{record.state} of epoch {record.epoch}"
        self._world.trace.note(self._host.name, f"{what} {run_id or ''} {job_ids} {shown}")
        self._world.tell_answer(answer)
