"""One job in the hands of its supervisor: prepared, run, verified, published, ended.

It beats as long as it holds the epoch, and starts no command unless a beat has just been accepted.
Once its epoch is sealed it adopts the next one if nobody else has it, and otherwise stops what it
started and writes nothing more than what is below its own epoch's keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from stado.core import moves
from stado.core.order import ReadyEntry
from stado.core.records import EndCell, Ending, LateResult, Phase, Record
from stado.core.states import Reason, Verdict
from stado.errors import Conflict, Denied, NotFound, Refused, StoreError, Unreadable
from stado.jobs import outputs
from stado.jobs.claim import Claimant, Claimed, adopt, holder_of
from stado.jobs.endings import ending_of_lost, give_verdict, settle, settle_own, write_late
from stado.jobs.repository import Repository
from stado.ports import Command, JobProcess, Processes, ProcessIdentity
from stado_agent.checkpoint_sync import CheckpointSync
from stado_agent.command_ending import CommandEnding
from stado_agent.environment import command_environment
from stado_agent.log_shipping import LogShipper
from stado_agent.pulse import Pulse
from stado_agent.workspace import HostFolder, SupervisorNote

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_LOOK_SECONDS = 0.5
"""How often a waiting supervisor looks whether something was asked for."""

_RETRY_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Host:
    """Where a supervisor works, and for whom."""

    processes: Processes
    folder: HostFolder
    claimant: Claimant
    environment: Mapping[str, str]
    identity: ProcessIdentity
    """Of the supervisor's own process."""


class _Fenced(Exception):
    """The epoch was ended without us: nothing more may be written for it."""


class _Cancelled(Exception):
    """A cancel was asked for, and everything that the command started has been stopped."""


class _Interrupted(Exception):
    """Something more urgent than what was being done has come."""


class _GivenUp(Exception):
    """A cancel came while the store did not take what the job left."""


class _NotStarted(Exception):
    """This host could not start the command: nothing of it has run."""


class _PulseFailed(Exception):
    """The pulse has ended by an error that nobody foresaw: the supervisor ends, too."""


class _InputUnavailable(Exception):
    """Something that the job starts from cannot be had."""


class JobRun:
    """One job, over one epoch or, once adopted, more."""

    def __init__(self, repo: Repository, host: Host, claimed: Claimed, entry: ReadyEntry) -> None:
        self._repo = repo
        self._host = host
        self._claimed = claimed
        self._entry = entry
        self._look_seconds = min(_LOOK_SECONDS, repo.deployment.beat_seconds)
        self._workspace = host.folder.workspace(claimed.record.id, claimed.record.epoch)
        self._shipper = LogShipper(repo, self._workspace.log)
        self._checkpoints = CheckpointSync(repo, self._workspace.checkpoints)
        self._process: JobProcess | None = None
        self._started_at: datetime | None = None
        self._outcome: Ending | None = None
        self._decided: EndCell | None = None
        self._pulse = self._new_pulse(claimed.record)

    @property
    def _record(self) -> Record:
        return self._claimed.record

    def run(self) -> None:
        """From the claim to the settled verdict; the workspace is gone afterwards."""
        try:
            if self._record.epoch == 1:
                self._announce_start()
            self._pulse.start()
            self._outcome = self._work()
            self._publish(self._outcome)
            self._finish(self._outcome)
        except _Fenced:
            self._write_late()
        finally:
            self._pulse.stop()
            self._stop_process()
            self._workspace.remove()

    # --- from preparation to the outcome ------------------------------------------------

    def _work(self) -> Ending:
        try:
            self._prepare()
            return self._judge(self._run_command(self._record.spec.command, Phase.RUNNING))
        except _Cancelled:
            detail = "cancelled while it was running"
            return self._ending(Verdict.CANCELLED, Reason.CANCELLED, detail)
        except _NotStarted as error:
            detail = f"the host could not start it: {error}"
            return self._ending(Verdict.FAILED, Reason.LAUNCH_FAILED, detail)
        except _InputUnavailable as error:
            return self._ending(Verdict.FAILED, Reason.INPUT_UNAVAILABLE, str(error))

    def _prepare(self) -> None:
        self._fence()
        with _refusals_of_host():
            self._workspace.make()
        if self._record.epoch > 1:
            self._restore_checkpoint()
            self._announce_start()
            self._pulse.beat_until_accepted()
        self._wait_for_permission()

    def _announce_start(self) -> None:
        """The beat that lets the command start also says so: what may have run is counted as a
        start, whatever happens next. Where there is nothing to prepare it is the first beat."""
        self._pulse.phase = Phase.RUNNING
        self._pulse.started_at = self._repo.now()

    def _restore_checkpoint(self) -> None:
        try:
            with _refusals_of_host():
                self._insist(
                    lambda: self._checkpoints.restore_newest(self._record.id, between=self._heed),
                    answers=(NotFound, Conflict),
                )
        except (Conflict, NotFound, Refused, Unreadable) as error:
            raise _InputUnavailable(f"no checkpoint of it can be restored: {error}") from error

    def _judge(self, exit_code: int) -> Ending:
        """The outcome of a command that ended by itself."""
        if exit_code != 0:
            detail = _describe_exit("the command", exit_code)
            return self._ending(Verdict.FAILED, Reason.JOB_FAILED, detail, exit_code)
        verify = self._record.spec.verify
        verified = 0 if verify is None else self._run_command(verify, Phase.VERIFYING)
        if verified != 0:
            detail = _describe_exit("the verify command", verified)
            return self._ending(Verdict.FAILED, Reason.VERIFY_FAILED, detail, exit_code)
        return self._ending(Verdict.COMPLETED, None, None, exit_code)

    def _ending(
        self,
        verdict: Verdict,
        reason: Reason | None,
        detail: str | None,
        exit_code: int | None = None,
    ) -> Ending:
        return Ending(
            verdict=verdict,
            reason=reason,
            detail=None if detail is None else moves.clip(detail),
            exit_code=exit_code,
            started_at=self._started_at,
            ended_at=self._repo.now(),
            by=self._host.claimant.consumer,
        )

    # --- the command --------------------------------------------------------------------

    def _wait_for_permission(self) -> None:
        """Returns when a beat has just been accepted. The verify command, which belongs to the
        same start, is not kept waiting for another."""
        self._heed()
        while not self._pulse.may_start():
            self._repo.clock.sleep(self._look_seconds)
            self._heed()

    def _run_command(self, command: str, phase: Phase) -> int:
        """The exit code. Raises `_Cancelled` once a cancel has stopped it, `_NotStarted` when it
        could not be started."""
        self._stop_if_cancelled()
        with _refusals_of_host():
            process = self._host.processes.start(self._command(command))
        self._process = process
        self._started_at = self._pulse.started_at
        self._pulse.phase = phase
        exit_code = self._attend(process)
        self._ending_of(process).end_leftovers()
        self._process = None
        return exit_code

    def _command(self, command: str) -> Command:
        workdir = self._record.spec.workdir
        return Command(
            argv=("/bin/sh", "-c", command),
            environment=command_environment(self._host.environment, self._record, self._workspace),
            folder=self._workspace.work if workdir is None else Path(workdir),
            log_path=self._workspace.log,
        )

    def _attend(self, process: JobProcess) -> int:
        """Waits for the command's end, shipping its log and checkpoints on the way.

        A command that has ended by itself keeps its outcome, whatever was asked meanwhile."""
        while True:
            exit_code = process.wait(self._look_seconds)
            if exit_code is not None:
                return exit_code
            self._heed()
            self._ship()

    def _heed(self) -> None:
        self._fence()
        self._stop_if_cancelled()

    def _stop_if_cancelled(self) -> None:
        if self._pulse.cancel_asked:
            self._pulse.phase = Phase.STOPPING
            self._stop_process()
            raise _Cancelled

    def _stop_process(self) -> None:
        if self._process is not None:
            grace = self._repo.deployment.cancel_grace_seconds
            self._ending_of(self._process).stop(grace_seconds=grace)
            self._process = None

    def _ending_of(self, process: JobProcess) -> CommandEnding:
        return CommandEnding(self._repo.clock, self._host.processes, process, self._record.id)

    # --- log, checkpoints, files --------------------------------------------------------

    def _ship(self) -> None:
        """What can wait: a store that is away delays it and nothing else."""
        try:
            self._shipper.ship_when_due(self._record.id, self._record.epoch)
            self._checkpoints.save_when_due(
                self._record.id, self._record.epoch, between=self._yield_to_what_is_asked
            )
        except _Interrupted:
            return
        except (StoreError, OSError) as error:
            log.warning("event=shipping_delayed job=%s error=%r", self._record.id, str(error))

    def _yield_to_what_is_asked(self) -> None:
        """A checkpoint of an hour must not keep a cancel, or a seal, waiting."""
        if self._pulse.sealed or self._pulse.cancel_asked:
            raise _Interrupted

    def _publish(self, outcome: Ending) -> None:
        """What the job leaves: its log, its last checkpoint, its files. Tried until it succeeds:
        a store that is away never costs a second execution. Who cancels the job by now gives up
        what cannot be delivered; the outcome stays."""
        partial = outcome.verdict is not Verdict.COMPLETED
        job_id, epoch = self._record.id, self._record.epoch
        asked_before = self._pulse.cancel_asked

        def heed() -> None:
            self._fence()
            if self._pulse.cancel_asked and not asked_before:
                raise _GivenUp

        self._pulse.phase = Phase.UPLOADING
        self._deliver("log", lambda: self._shipper.ship_rest(job_id, epoch), heed)
        if partial:
            self._deliver("checkpoint", lambda: self._checkpoints.save_rest(job_id, epoch), heed)
        publisher = outputs.OutputPublisher(
            self._repo, job_id=job_id, epoch=epoch, folder=self._workspace.output
        )
        self._deliver("output", lambda: publisher.publish(partial=partial), heed)

    def _deliver(self, what: str, step: Callable[[], object], heed: Callable[[], None]) -> None:
        """An outcome that is known is never lost over what this host cannot read, or over what
        nobody waits for any more: a cancel that comes now gives up what the store does not take."""
        try:
            self._persist(step, between=heed)
        except (OSError, _GivenUp) as error:
            log.error(
                "event=undelivered what=%s job=%s error=%r", what, self._record.id, str(error)
            )

    # --- the verdict --------------------------------------------------------------------

    def _finish(self, outcome: Ending) -> None:
        """Gives the verdict and settles; what others decided first is settled instead."""
        if self._is_decided():
            return
        cell, ours = self._insist(lambda: give_verdict(self._repo, self._record, outcome))
        if self._is_decided():
            return
        if ours:
            self._decided = cell
            version = self._claimed.running_version
            self._insist(lambda: settle_own(self._repo, cell, version))
        else:
            self._settle()
            self._write_late()
        self._log_end(cell)

    def _is_decided(self) -> bool:
        """Whether the verdict was given on the way, because the epoch turned out to be sealed."""
        return self._decided is not None

    def _settle(self) -> None:
        self._insist(lambda: settle(self._repo, self._record.id, self._record.epoch))

    def _log_end(self, cell: EndCell) -> None:
        log.info(
            "event=ended job=%s epoch=%d verdict=%s reason=%s exit_code=%s",
            cell.record.id,
            cell.record.epoch,
            cell.ending.verdict,
            cell.ending.reason,
            cell.ending.exit_code,
        )

    # --- sealed -------------------------------------------------------------------------

    def _fence(self) -> None:
        """Nothing, unless the epoch was sealed. Then it gets its verdict, ours if we are first:
        the outcome where the command has ended, else lost, and a living command is carried over
        into the next epoch if nobody else has that. Raises `_Fenced` when we are out of it."""
        if self._pulse.failure is not None:
            raise _PulseFailed from self._pulse.failure
        if not self._pulse.sealed or self._decided is not None:
            return
        verdict = self._outcome or self._persist(self._lost)
        cell, ours = self._persist(lambda: give_verdict(self._repo, self._record, verdict))
        self._persist(lambda: settle(self._repo, self._record.id, self._record.epoch))
        if ours and self._outcome is not None:
            self._decided = cell
            self._log_end(cell)
        elif self._process is None or not self._adopt(cell):
            raise _Fenced

    def _lost(self) -> Ending:
        return ending_of_lost(
            self._repo,
            self._record,
            started_at=self._started_at,
            by=self._host.claimant.consumer,
            reason=Reason.LEASE_EXPIRED,
            detail="its worker could not give a sign of life in time",
        )

    def _adopt(self, cell: EndCell) -> bool:
        """Whether the living command now runs under the next epoch."""
        if cell.ending.verdict is not Verdict.LOST:
            return False
        following = moves.after(cell)
        holder = holder_of(self._repo, self._host.claimant, adopted=True)
        adopted = self._persist(lambda: adopt(self._repo, following, holder))
        if adopted is None:
            return False
        log.warning("event=adopted job=%s epoch=%d", adopted.record.id, adopted.record.epoch)
        self._claimed = adopted
        self._pulse.stop()
        phase, self._pulse = self._pulse.phase, self._new_pulse(adopted.record)
        self._pulse.phase = phase
        self._pulse.started_at = self._started_at
        self._renew_note()
        self._pulse.start()
        self._fence()
        return True

    def _write_late(self) -> None:
        """What we still had to say when the epoch had been decided without us."""
        if self._started_at is None:
            return
        exit_code = self._process.wait(0) if self._process is not None else None
        if self._outcome is not None:
            exit_code = self._outcome.exit_code
        self._stop_process()
        late = LateResult(
            job_id=self._record.id,
            epoch=self._record.epoch,
            consumer=self._host.claimant.consumer,
            at=self._repo.now(),
            exit_code=exit_code,
            detail="the worker was heard again after its epoch had been ended without it",
        )
        try:
            write_late(self._repo, late)
            self._shipper.ship_rest(late.job_id, late.epoch)
        except (StoreError, OSError) as error:
            log.warning("event=late_result_lost job=%s error=%r", late.job_id, str(error))

    # --- patience -----------------------------------------------------------------------

    def _insist(
        self, step: Callable[[], Result], *, answers: tuple[type[StoreError], ...] = ()
    ) -> Result:
        """Repeats a step until the store takes it, or the epoch turns out to be sealed.

        `answers` are errors that say something about what was asked, and are raised."""
        return self._persist(step, between=self._fence, answers=answers)

    def _persist(
        self,
        step: Callable[[], Result],
        *,
        between: Callable[[], None] | None = None,
        answers: tuple[type[StoreError], ...] = (),
    ) -> Result:
        """Repeats a step for as long as it takes. Even a refusal can be mended meanwhile: keys
        that were renewed, a bucket that was made again."""
        pause = 1.0
        while True:
            try:
                return step()
            except answers:
                raise
            except StoreError as error:
                self._log_delay(error, pause)
            if between is not None:
                between()
            self._repo.clock.sleep(self._repo.entropy.uniform(pause / 2, pause))
            pause = min(pause * 2, _RETRY_SECONDS_MAX)

    def _log_delay(self, error: StoreError, pause: float) -> None:
        log.warning(
            "event=store_%s job=%s retry_seconds=%.0f error=%r",
            "refused" if isinstance(error, Denied) else "unreachable",
            self._record.id,
            pause,
            str(error),
        )

    # --- this host ----------------------------------------------------------------------

    def _new_pulse(self, record: Record) -> Pulse:
        pid = self._host.identity.pid
        return Pulse(self._repo, record, lambda: self._host.folder.touch_note(pid))

    def _renew_note(self) -> None:
        """With the epoch that was adopted. A disk that is full ends no command: should we die,
        the note names an epoch that is over, and a reaper ends the present one."""
        note = SupervisorNote(
            supervisor=self._host.identity,
            job_id=self._record.id,
            epoch=self._record.epoch,
            needs=self._entry.needs,
            workspace=self._workspace.root.name,
        )
        try:
            self._host.folder.write_note(note)
        except OSError as error:
            log.warning("event=note_not_written job=%s error=%r", note.job_id, str(error))


@contextmanager
def _refusals_of_host() -> Iterator[None]:
    """Around what a start takes of this host: what it refuses is why there was none."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename is not None else ""
        raise _NotStarted(f"{error.strerror or error}{where}") from error


def _describe_exit(what: str, exit_code: int) -> str:
    if exit_code < 0:
        return f"{what} was ended by signal {-exit_code}"
    return f"{what} exited with {exit_code}"
