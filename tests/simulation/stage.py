"""A world with a plan of its own: who does what when, and no weather but what is scripted."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import Record, RunRecord
from stado.core.retention import Rules
from stado.core.spec import Request, Spec, make_request
from stado.core.states import JobType, Leftover, State
from stado.errors import NotFound, Refused, StadoError
from stado.jobs.asking import ask_to_yield
from stado.jobs.changes import cancel, pause, resume, retry
from stado.jobs.deletion import delete
from stado.jobs.finding import find_job
from stado.jobs.followers import FollowerNote
from stado.jobs.logs import LogReader
from stado.jobs.priority import set_priority
from stado.jobs.reaping import Reaper
from stado.jobs.retention import Retention
from stado.jobs.submission import job_ids_of
from stado.jobs.submit import submit
from stado.storage.port import walk
from tests.simulation.checkers.base import Violation
from tests.simulation.commands import VERIFY, Script
from tests.simulation.people import Answer, placed
from tests.simulation.process import SimHost
from tests.simulation.scripted import OUTAGE_SECONDS, Fault, Scripted
from tests.simulation.timetable import make_schedule, pause_schedule
from tests.simulation.weather import Fate
from tests.simulation.world import FOLDERS, World

if TYPE_CHECKING:
    from stado.jobs.repository import Repository
    from tests.simulation.scenarios import Scenario

BOUND_SECONDS = 120.0
"""Of simulated time, from the end of the last fault until all must be at rest."""

_LOOK_SECONDS = 0.25
_TRIES_MAX = 10
_LOOKS_MAX = 20


class Errand:
    """A command that somebody gives, and gives again when it dies or fails; unless nobody does."""

    def __init__(
        self, stage: Stage, host: SimHost, work: Callable[[Repository], None], *, again: bool
    ) -> None:
        self._stage = stage
        self._host = host
        self._work = work
        self._tries_left = _TRIES_MAX if again else 1
        self._done = False
        self.busy = True
        self._give()

    def _give(self) -> None:
        self._tries_left -= 1
        process = self._host.new_process("cli")
        process.when_ended(self._note_end)
        process.start(self._run, ends=None)

    def _run(self) -> None:
        try:
            self._work(self._stage.open_repository(self._host))
            self._done = True
        except StadoError as error:
            self._stage.trace.note(self._host.name, f"told: {type(error).__name__} {error}")

    def _note_end(self) -> None:
        if self._done or not self._tries_left:
            self.busy = False
        else:
            self._stage.kernel.after(1.0, self._give)


class Stage(World):
    """`weather` tells when a fault happens. `people_repeat`: whether a command that died is given
    once more."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        seed: int,
        weather: Scripted,
        people_repeat: bool = True,
        out: TextIO | None = None,
    ) -> None:
        super().__init__(seed, folder, plan=scenario.plan, weather=weather, out=out)
        self._scripted = weather
        self._people_repeat = people_repeat
        self._errands: list[Errand] = []
        self._awaited = 0
        """Of what a scenario has planned for a later moment."""
        scenario.play(self)

    # --- what scenarios are made of -----------------------------------------------------

    def submit(
        self,
        who: str,
        run_id: str,
        scripts: Sequence[Script],
        *,
        verify: bool = False,
        trains: bool = False,
        deadline_seconds: float | None = None,
        **stated: Any,
    ) -> None:
        """The same commands under the same run id make the same request. `deadline_seconds`: from
        now on; `stated`: what else the spec says."""
        commands = [f"{run_id}-{number}" for number in range(len(scripts))]
        self.scripts |= dict(zip(commands, scripts, strict=True))
        spec = Spec(
            command="",
            verify=VERIFY if verify else None,
            type=JobType.TRAIN if trains else JobType.JOB,
            max_lease_losses=1 if trains else None,
            **stated,
        )
        if deadline_seconds is not None:
            deadline_at = self.store.now() + timedelta(seconds=deadline_seconds)
            spec = spec.evolve(deadline_at=deadline_at)
        request = make_request(commands, spec, batch=len(scripts) > 1)
        self._send(who, partial(self._submit, run_id=run_id, request=request, who=who))

    def cancel(self, who: str, run_id: str) -> None:
        """Each job of the run, and waits until it is done, as the command line does."""
        self._send(who, partial(self._cancel, run_id=run_id, who=who))

    def pause(self, who: str, run_id: str) -> None:
        self._send(who, partial(self._ask, pause, "paused", run_id=run_id, who=who))

    def want_room(self, who: str, run_id: str) -> None:
        self._send(who, partial(self._want_room, run_id=run_id, who=who))

    def resume(self, who: str, run_id: str) -> None:
        self._send(who, partial(self._ask, resume, "resumed", run_id=run_id, who=who))

    def retry(self, who: str, run_id: str) -> None:
        self._send(who, partial(self._ask, retry, "retried", run_id=run_id, who=who))

    def set_priority(self, who: str, run_id: str, priority: int) -> None:
        self._send(who, partial(self._set_priority, run_id=run_id, who=who, priority=priority))

    def schedule(self, who: str, name: str, script: Script, *, end_seconds: float) -> None:
        """Due each minute, until then."""
        self.scripts[f"of-{name}"] = script
        self._send(who, partial(self._schedule, who=who, name=name, end_seconds=end_seconds))

    def pause_schedule(self, who: str, name: str) -> None:
        self._send(who, partial(self._pause_schedule, who=who, name=name))

    def delete(self, who: str, run_id: str) -> None:
        self._send(who, partial(self._delete, run_id=run_id, who=who))

    def let_go(self, who: str, *kinds: Leftover) -> None:
        """What has ended, whatever its age."""
        rules = Rules(ages=dict.fromkeys(kinds, 0), keep_newest=0)
        self._send(who, partial(self._let_go, who=who, rules=rules))

    def follow(self, who: str, run_id: str) -> None:
        """The logs of the run, once from their beginnings, with a note beside each."""
        self._send(who, partial(self._follow, run_id=run_id))

    def when(self, condition: Callable[[], bool], act: Callable[[], None]) -> None:
        """Once, as soon as the condition is met; never, if it never is."""
        if condition():
            act()
        else:
            self.kernel.after(_LOOK_SECONDS / 5, lambda: self.when(condition, act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """The run lasts at least until then."""

        def happen() -> None:
            self._awaited -= 1
            act()

        self._awaited += 1
        self.kernel.after(seconds, happen)

    def lose_power(self, host: SimHost, *, seconds: float) -> None:
        self.trace.note("world", f"{host.name} loses power")
        host.go_down()
        self.after(seconds, lambda: self._restore_power(host))

    def has_job_in(self, state: State) -> bool:
        return bool(self.store.list(keys.prefix(state), limit=1))

    def job_ids(self, run_id: str) -> list[str]:
        """None as long as there is no such run."""
        key = keys.run(run_id)
        try:
            return job_ids_of(decode(RunRecord, key, self.store.get(key).data))
        except NotFound:
            return []

    # --- what people do -----------------------------------------------------------------

    def _send(self, who: str, work: Callable[[Repository], None]) -> None:
        self._errands.append(Errand(self, self._host_of(who), work, again=self._people_repeat))

    def _host_of(self, who: str) -> SimHost:
        host = next((host for host in self.laptops if host.name == who), None)
        if host is None:
            host = self._host(who)
            self.laptops.append(host)
        return host

    def _follow(self, repo: Repository, *, run_id: str) -> None:
        for job_id in self.job_ids(run_id):
            asked_at, note = self.kernel.now, FollowerNote(repo, job_id)
            note.renew_when_due()
            reader, read = LogReader(repo, job_id, 1), list[tuple[int, bytes]]()
            for _ in range(_LOOKS_MAX):
                read += placed(reader, reader.read_rest())
                repo.clock.sleep(1.0)
            self.tell_answer(Answer("read", asked_at, job_ids=(job_id,), epoch=1, read=tuple(read)))

    def _submit(self, repo: Repository, *, run_id: str, request: Request, who: str) -> None:
        asked_at = self.kernel.now
        job_ids = tuple(submit(repo, run_id=run_id, request=request, submitter=who).job_ids)
        self.trace.note(who, f"submitted {run_id}: {job_ids}")
        self.tell_answer(Answer("submitted", asked_at, run_id, job_ids))

    def _cancel(self, repo: Repository, *, run_id: str, who: str) -> None:
        for job_id in self.job_ids(run_id):
            asked_at = self.kernel.now
            record = cancel(repo, job_id, by=who).record
            self._tell("cancelled", who, asked_at, record)
            if not record.state.at_rest:
                self._wait_for_end(repo, job_id, who)

    def _ask(
        self, move: Callable[..., Any], what: str, repo: Repository, *, run_id: str, who: str
    ) -> None:
        """A refusal is an answer: nobody asks again."""
        for job_id in self.job_ids(run_id):
            asked_at = self.kernel.now
            try:
                record = move(repo, job_id, by=who).record
            except Refused as error:
                self.trace.note(who, f"told: {error}")
                continue
            self._tell(what, who, asked_at, record)

    def _want_room(self, repo: Repository, *, run_id: str, who: str) -> None:
        for job_id in self.job_ids(run_id):
            found = find_job(repo, job_id)
            if found is not None and found.state is State.RUNNING:
                ask_to_yield(repo, job_id, found.record.epoch, by=who, note="")

    def _set_priority(self, repo: Repository, *, run_id: str, who: str, priority: int) -> None:
        for job_id in self.job_ids(run_id):
            asked_at = self.kernel.now
            try:
                receipt = set_priority(repo, job_id, priority, by=who)
            except Refused as error:
                self.trace.note(who, f"told: {error}")
                continue
            self.trace.note(who, f"prioritized {job_id}: {receipt.change}")
            self.tell_answer(
                Answer(
                    "prioritized",
                    asked_at,
                    job_ids=(job_id,),
                    record=receipt.record,
                    change=receipt.change,
                )
            )

    def _schedule(self, repo: Repository, *, who: str, name: str, end_seconds: float) -> None:
        if self.kernel.now < end_seconds:
            make_schedule(self, repo, name, by=who, end_seconds=end_seconds)

    def _pause_schedule(self, repo: Repository, *, who: str, name: str) -> None:
        with suppress(NotFound):
            pause_schedule(self, self._host_of(who), repo, name)

    def _let_go(self, repo: Repository, *, who: str, rules: Rules) -> None:
        for _ in Retention(repo, rules, by=who).outcomes(apply=True, jobs_max=100):
            pass

    def _delete(self, repo: Repository, *, run_id: str, who: str) -> None:
        for job_id in self.job_ids(run_id):
            delete(repo, job_id, by=who)

    def _wait_for_end(self, repo: Repository, job_id: str, who: str) -> None:
        reaper = Reaper(repo, by=who)
        for _ in range(_LOOKS_MAX):
            repo.clock.sleep(repo.deployment.beat_seconds)
            asked_at = self.kernel.now
            found = find_job(repo, job_id)
            if found is None:
                self.tell_answer(Answer("found", asked_at, job_ids=(job_id,)))
                return
            self._tell("found", who, asked_at, found.record)
            if found.record.state.at_rest:
                return
            reaper.turn_for(job_id)

    def _tell(self, what: str, who: str, asked_at: float, record: Record) -> None:
        self.trace.note(who, f"{what} {record.id}: {record.state} of epoch {record.epoch}")
        self.tell_answer(Answer(what, asked_at, job_ids=(record.id,), record=record))

    def _restore_power(self, host: SimHost) -> None:
        host.come_up()
        for service in self.services:
            if service.host is host:
                service.start()

    # --- the run ------------------------------------------------------------------------

    def run(self) -> None:
        """Until the faults have happened and everything is at rest; then the last checks."""
        with self.trace.with_logs(self._note_fault):
            self.come_to_rest()
            self.check_at_end()

    def come_to_rest(self) -> None:
        while not self.kernel.halted:
            self.kernel.run_until(self.kernel.now + _LOOK_SECONDS)
            unrest = self.unrest()
            if unrest is None:
                return
            if self._scripted.is_over and self.kernel.now >= self._over_at:
                self._tell_checkers("on_look")
            if self.kernel.now >= self._over_at + BOUND_SECONDS:
                text = f"{BOUND_SECONDS:.0f} s after the last fault {unrest}"
                self._note_violation(Violation("all comes to rest", self.kernel.now, text))

    def unrest(self) -> str | None:
        if any(errand.busy for errand in self._errands):
            return "somebody has not got an answer yet"
        if self._awaited or self.kernel.now < self._over_at:
            return "something is still to happen"
        found = itertools.chain(self._unrest_in_store(), self._unrest_on_hosts())
        return next(found, None)

    @property
    def patience_seconds(self) -> float:
        """Tighter than where many things go wrong: nothing is left alone for minutes."""
        return 2 * (self.plan.room_waits.keep_after_seconds + self._longest)

    def ends(self) -> list[State]:
        """The states that its jobs are in."""
        return [state for state in State for _ in walk(self.store, keys.prefix(state))]

    @property
    def restless_seconds(self) -> float:
        """From the end of the last fault."""
        return max(0.0, self.kernel.now - self._over_at)

    @property
    def _over_at(self) -> float:
        """When the last fault has no effect of its own any more."""
        lasting = (self._lasts(each.fault) for each in self._scripted.happened)
        return self._scripted.last_at + max(lasting, default=0.0)

    def _lasts(self, fault: Fault) -> float:
        outage = OUTAGE_SECONDS if fault.begins_outage else 0.0
        if fault.fate in (Fate.LATE, Fate.DUPLICATE):
            return max(outage, self.plan.ways.late_max)
        if fault.fate in (Fate.STALL_BEFORE, Fate.STALL_AFTER):
            return self.plan.ways.stall_max
        return outage


@contextmanager
def made_stage(
    scenario: Scenario,
    *,
    seed: int,
    weather: Scripted,
    people_repeat: bool = True,
    out: TextIO | None = None,
) -> Iterator[Stage]:
    """A stage that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="stado-stage-", dir=FOLDERS) as folder:
        stage = Stage(
            scenario,
            Path(folder),
            seed=seed,
            weather=weather,
            people_repeat=people_repeat,
            out=out,
        )
        try:
            yield stage
        finally:
            stage.kernel.close()
