"""One job in the hands of its supervisor: prepared, run, verified, published, ended.

It beats as long as it holds the epoch, and starts no command unless a beat has just been accepted.
Once its epoch is sealed it adopts the next one if nobody else has it, and otherwise stops what it
started and writes nothing more than what is below its own epoch's keys.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from stado.core import moves
from stado.core.moves import Loss
from stado.core.order import ReadyEntry
from stado.core.records import (
    RAN_SECONDS_MAX,
    EndCell,
    Ending,
    Heartbeat,
    Holder,
    JobEnd,
    LateResult,
    Phase,
    PolicySeal,
    Record,
)
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.core.states import Reason, Verdict
from stado.core.usage import ran_until
from stado.errors import EngineFailed, StoreError, Unreadable
from stado.jobs import outputs
from stado.jobs.claim import Claimed, adopt, holder_of
from stado.jobs.endings import (
    as_queued_last,
    ending_of_lost,
    give_verdict,
    settle,
    settle_own,
    write_late,
)
from stado.jobs.life import seal_epoch
from stado.jobs.log_compaction import compact_earlier_logs, compact_log
from stado.jobs.policy_seals import find_seal
from stado.jobs.quotas import ScopeFull, Slots, take_slots
from stado.jobs.repository import Repository, Stored
from stado.jobs.saving import Manner
from stado.ports import Command, JobProcess
from stado.reports import REFUSED_EXIT_CODE
from stado_agent.breaks import (
    Cancelled,
    Carried,
    Fenced,
    GivesWay,
    HostUnable,
    InputUnavailable,
    NotStarted,
    OutOfTime,
    Paused,
    PulseFailed,
    TooMuchMemory,
)
from stado_agent.checkpoint_sync import CheckpointSync
from stado_agent.contained_process import LastWords
from stado_agent.container import ReadyImage
from stado_agent.downloads import Interrupted
from stado_agent.environment import command_environment, contained_environment, sizes_text
from stado_agent.host import Host
from stado_agent.job_clocks import HostLimits, IdleWatch, JobClocks, TimeUp
from stado_agent.job_commands import JobCommands
from stado_agent.job_containers import JobContainers
from stado_agent.log_shipping import LogEpoch, LogShipper
from stado_agent.log_spool import LogSpool
from stado_agent.log_times import LogTimes
from stado_agent.masking import MaskedSink, Masker
from stado_agent.patience import Patience
from stado_agent.preparation import Means, Preparation, Watch
from stado_agent.publication import Interest, Publication
from stado_agent.pulse import Pulse
from stado_agent.report_folder import ReportFolder
from stado_agent.request_count import RequestCount
from stado_agent.shell import StrictShell, plain_argv
from stado_agent.shipping import Shipping

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_LOOK_SECONDS = 0.5
"""How often a supervisor looks at its command's memory, and whether something was asked for (of
which it is told as well)."""

_GIB = 1024**3
_GIVEN_BACK_MAX = 20
"""So often a job is given back by hosts that could not start it; then it is the job that cannot be
started."""


class JobRun:
    """One job, over one epoch or, once adopted, more."""

    def __init__(
        self,
        repo: Repository,
        host: Host,
        claimed: Claimed,
        entry: ReadyEntry,
        *,
        rules: DeploymentSettings = DeploymentSettings(),  # noqa: B008 - frozen
        on_started: Callable[[], None] = lambda: None,
        count: RequestCount | None = None,
    ) -> None:
        """`count`: of what is asked of the store for the job; None: from now on."""
        self._repo = repo
        self._count = RequestCount(repo.meter) if count is None else count
        self._rules = rules
        self._on_started = on_started
        self._host = host
        self._claimed = claimed
        self._entry = entry
        self._look_seconds = min(_LOOK_SECONDS, repo.deployment.tick_seconds)
        self._workspace = host.folder.workspace(claimed.record.id, claimed.record.epoch)
        self._clocks = JobClocks(
            repo,
            lambda: self._record,
            HostLimits(
                run_seconds=host.max_run_seconds,
                pre_running_seconds=rules.limits.pre_running_seconds,
            ),
        )
        self._idle = IdleWatch(
            repo.clock,
            self._workspace.checkpoints,
            limit_seconds=claimed.record.spec.idle_timeout_seconds,
            look_seconds=repo.deployment.tick_seconds,
        )
        of = LogEpoch(claimed.record.id, claimed.record.epoch)
        limit = host.log_limit
        self._spool = LogSpool(self._workspace.log, limit, repo.tasks.lock())
        self._log_times = LogTimes(repo.clock)
        self._printing = repo.tasks.lock()
        """The command prints, and whoever saves its checkpoints has something to say."""
        self._shipper = LogShipper(repo, self._spool, limit, of)
        self._checkpoints = CheckpointSync(
            repo,
            self._workspace.checkpoints,
            manner=Manner(bytes_per_second=host.checkpoint_bytes_per_second),
            heard_at=lambda: self._pulse.heard_at,
            say=self._say,
            on_saved=self._note_saved,
        )
        self._work_since = repo.clock.now()
        self._shipping = Shipping(
            repo, self._shipper, self._checkpoints, look_seconds=_LOOK_SECONDS
        )
        self._patience = Patience(
            repo.clock, repo.entropy, job_id=claimed.record.id, tell=self._tell_trouble
        )
        self._commands = JobCommands(
            repo,
            host,
            job_id=claimed.record.id,
            tell=self._tell_trouble,
            on_enclosure=self._renew_note,
        )
        self._preparation = self._new_preparation()
        self._publication = Publication(
            repo,
            host,
            self._workspace,
            shipper=self._shipper,
            checkpoints=self._checkpoints,
            patience=self._patience,
            interest=Interest(
                record=lambda: self._record,
                fence=self._fence,
                cancel_asked=lambda: self._pulse.cancel_asked,
                mask=self._masked,
            ),
        )
        self._containers = JobContainers(
            host,
            repo.clock,
            self._workspace,
            say=self._preparation.say,
            tell=self._tell_trouble,
        )
        self._image: ReadyImage | None = None
        """Once the engine has it; of a job that runs as processes of the host there is none."""
        self._secrets: dict[str, str] = {}
        self._masker: Masker | None = None
        """None as long as no secret is known."""
        self._shell: StrictShell | None = None
        """Of the command that was started last, where it is strict."""
        self._reports = ReportFolder(self._workspace.report, self._masked, say=self._say)
        self._has_ended = False
        """Whether the command has ended by itself: what it did is not done again, although its
        outcome is not known yet."""
        self._run_number = 0
        """Of the command in this epoch, or in those that it was carried through."""
        self._memory_exceeded: str | None = None
        self._started_at: datetime | None = None
        self._exited_at: datetime | None = None
        """When nothing of the last command lived any more, while none has been started since."""
        self._outcome: Ending | None = None
        self._decided: EndCell | None = None
        self._pulse = self._new_pulse(claimed.record)

    def _new_preparation(self) -> Preparation:
        return Preparation(
            self._repo,
            self._host,
            self._record,
            Means(
                workspace=self._workspace,
                commands=self._commands,
                checkpoints=self._checkpoints,
                spool=self._spool,
                patience=self._patience,
            ),
            Watch(
                fence=self._fence,
                heed=self._heed,
                break_off=self._break_off,
                refusals=self._refusals,
                ship=self._shipping.start,
                tell=self._tell_trouble,
                look_seconds=self._look_seconds,
            ),
        )

    @property
    def _record(self) -> Record:
        return self._claimed.record

    def run(self) -> str | None:
        """From the claim to the settled verdict; the workspace is gone afterwards, unless an error
        ends us: then the agent has it salvaged. What this host could not do, when that is why the
        epoch was given back."""
        in_order = False
        if self._record.yields_left:
            self._renew_note()
        try:
            if not self._prepares_for_long():
                self._announce_start()
            self._pulse.start()
            self._outcome = self._retried(self._work())
            while not self._has_delivered(self._outcome):
                continue
            in_order = True
        except Fenced:
            self._write_late()
            in_order = True
        finally:
            self._shipping.stop()
            self._pulse.stop()
            self._commands.stop_all()
            self._spool.close()
            if in_order:
                self._workspace.remove()
        self._compact_logs()
        unable = self._outcome is not None and self._outcome.reason is Reason.HOST_UNABLE
        return self._outcome.detail if self._outcome is not None and unable else None

    @property
    def end(self) -> JobEnd | None:
        """How it ended here; None when others decided that."""
        if self._decided is None:
            return None
        record, ending = self._decided.record, self._decided.ending
        began_at, ran = ending.started_at, ending.ran
        lasted = None
        if began_at is not None and ran is not None:
            seconds = (ran.ended_at - began_at).total_seconds()
            lasted = min(max(0.0, seconds), RAN_SECONDS_MAX)
        return JobEnd(
            job_id=record.id,
            user=moves.clip(record.submitter),
            verdict=ending.verdict,
            reason=ending.reason,
            ran_seconds=lasted,
            at=ending.ended_at,
        )

    def _has_delivered(self, outcome: Ending) -> bool:
        """False when the epoch was taken from us on the way and we adopted the next one. That ends
        when the job has been lost too often."""
        try:
            self._finish(self._publish(outcome))
        except Carried:
            return False
        return True

    # --- from preparation to the outcome ------------------------------------------------

    def _work(self) -> Ending:
        try:
            self._prepare()
            return self._execute()
        except Cancelled:
            return self._stopped(Verdict.CANCELLED, Reason.CANCELLED)
        except (Paused, GivesWay) as stop:
            return self._put_aside(stop)
        except OutOfTime as error:
            up = error.time_up
            return self._ending(up.verdict, up.reason, up.detail)
        except NotStarted as error:
            detail = f"the host could not start it: {error}"
            return self._ending(Verdict.FAILED, Reason.LAUNCH_FAILED, detail)
        except HostUnable as error:
            detail = f"the host has no room to start it: {error}"
            return self._ending(Verdict.LOST, Reason.HOST_UNABLE, detail)
        except TooMuchMemory as error:
            return self._too_much_memory(str(error))
        except InputUnavailable as error:
            return self._ending(Verdict.FAILED, Reason.INPUT_UNAVAILABLE, str(error))

    def _retried(self, outcome: Ending) -> Ending:
        """A failure becomes another try where the job has one left."""
        retried = moves.retried(self._record, outcome, jitter=self._repo.entropy.uniform(0.0, 1.0))
        if retried.retry_at is not None:
            log.info("event=retrying job=%s at=%s", self._record.id, retried.retry_at)
        return retried

    def _stopped(self, verdict: Verdict, reason: Reason) -> Ending:
        """As somebody asked."""
        doing = "running" if self._started_at is not None else "being prepared"
        asked = self._pulse.asked
        note = f": {asked.note}" if asked.note else ""
        detail = f"{verdict.value} while it was {doing}, by {asked.by}{note}"
        return self._ending(verdict, reason, detail)

    def _put_aside(self, stop: Paused | GivesWay) -> Ending:
        """A later epoch goes on from what was saved."""
        if isinstance(stop, Paused):
            return self._stopped(Verdict.PAUSED, Reason.PAUSED_BY_USER)
        asked = self._pulse.asked
        reason = Reason.HOST_CLOSED if asked.evict else Reason.YIELDED
        by, why = asked.give_way_by or "unknown", asked.give_way_note
        detail = f"put back into the queue by {by}{f': {why}' if why else ''}"
        return self._ending(Verdict.YIELDED, reason, detail)

    def _prepare(self) -> None:
        self._fence()
        with self._refusals():
            self._workspace.make()
        if self._prepares_for_long():
            self._preparation.fetch_inputs()
            self._preparation.restore_checkpoint()
            self._take_secrets()
            self._preparation.bring_code()
            if self._record.spec.image is not None:
                self._image = self._preparation.bring_image(self._record.spec.image)
            self._announce_start()
            self._pulse.beat_until_accepted()
        self._wait_for_permission()

    def _prepares_for_long(self) -> bool:
        """Whether there is more to do before the start than to make a folder."""
        return self._record.epoch > 1 or self._record.spec.takes_along

    def _announce_start(self) -> None:
        """The beat that lets the command start also says so: what may have run is counted as a
        start, whatever happens next. Where there is nothing to prepare it is the first beat."""
        self._pulse.phase = Phase.RUNNING
        self._pulse.started_at = self._repo.now()

    def _break_off(self) -> None:
        """For threads that must not act for the job themselves: whether `_heed` has something to
        do."""
        asked = self._pulse.cancel_asked or self._pulse.pause_asked or self._pulse.must_give_way
        if asked or self._pulse.sealed or self._pulse.failure is not None:
            raise Interrupted
        if self._clocks.time_up() is not None:
            raise Interrupted

    def _take_secrets(self) -> None:
        """From here on what the command prints, and what is said about it, is masked."""
        self._secrets = self._preparation.take_secrets()
        if self._secrets:
            self._masker = Masker(self._secrets.values())

    def _masked(self, text: str) -> str:
        return text if self._masker is None else self._masker.text(text)

    def _too_much_memory(self, detail: str, exit_code: int | None = None) -> Ending:
        reason = Reason.MEMORY_LIMIT_EXCEEDED
        return self._ending(Verdict.FAILED, reason, detail, exit_code)

    def _execute(self) -> Ending:
        """The outcome of commands that end by themselves, down to the first that fails."""
        spec = self._record.spec
        if spec.pre_command is not None:
            exit_code = self._run_command(spec.pre_command, Phase.RUNNING)
            if exit_code != 0:
                return self._failed("the pre-command", spec.pre_command, exit_code)
        failure = self._run_body(spec)
        if failure is not None:
            return failure
        self._has_ended = True
        if spec.needs_checkpoint and not self._secure_checkpoint():
            why = self._checkpoints.unsaved
            detail = f"no checkpoint was saved{f': {why}' if why else ''}"
            return self._ending(Verdict.FAILED, Reason.NO_CHECKPOINT_SAVED, detail, 0)
        lacking = outputs.missing_outputs(self._workspace.output, spec.expected_outputs)
        if lacking:
            detail = f"not in its output folder: {', '.join(lacking)}"
            return self._ending(Verdict.FAILED, Reason.DECLARED_OUTPUT_MISSING, detail, 0)
        verify = spec.verify
        verified = 0 if verify is None else self._run_command(verify, Phase.VERIFYING)
        if verified != 0:
            detail = self._describe_exit("the verify command", verify or "", verified)
            return self._ending(Verdict.FAILED, Reason.VERIFY_FAILED, detail, 0)
        return self._ending(Verdict.COMPLETED, None, None, 0)

    def _run_body(self, spec: Spec) -> Ending | None:
        """The command, and again where it failed by itself and may be run again; its last failure,
        None once it succeeded. It finds all folders as the run before left them."""
        for retries_left in range(spec.body_retries, -1, -1):
            self._run_number = spec.body_retries - retries_left + 1
            exit_code = self._run_command(spec.command, Phase.RUNNING)
            if exit_code == 0:
                return None
            failure = self._failed("the command", spec.command, exit_code)
            if failure.reason is not Reason.JOB_FAILED or not retries_left:
                return failure
            self._say_run_again(failure.detail or "", runs=spec.body_retries + 1)
            self._wait_for_permission()
        raise AssertionError("there is a last run")

    def _say_run_again(self, why: str, *, runs: int) -> None:
        number = self._run_number
        said = f"run {number} of {runs} failed: {why}; it is run again"
        log.info("event=run_again job=%s run=%d why=%r", self._record.id, number, why)
        self._say(said)

    def _say(self, text: str) -> None:
        """A line of ours between what the job prints."""
        with self._printing:
            begin = "" if self._spool.line_ended else "\n"
            line = f"{begin}[stado] {self._masked(text)}\n".encode("utf-8", "backslashreplace")
            self._keep_output(memoryview(line))

    def _failed(self, what: str, command: str, exit_code: int) -> Ending:
        """The outcome of a command that ended badly: what it says of that itself counts first."""
        refusal = self._reports.find_refusal() if exit_code == REFUSED_EXIT_CODE else None
        if refusal is not None:
            return self._ending(Verdict.FAILED, Reason.JOB_REFUSED, refusal, exit_code)
        if self._memory_exceeded is not None:
            return self._too_much_memory(self._memory_exceeded, exit_code)
        detail = self._describe_exit(what, command, exit_code)
        return self._ending(Verdict.FAILED, Reason.JOB_FAILED, detail, exit_code)

    def _describe_exit(self, what: str, command: str, exit_code: int) -> str:
        if exit_code < 0:
            return f"{what} was ended by signal {-exit_code}"
        line = None if self._shell is None else self._shell.failed_line(command, self._masked)
        return f"{what} exited with {exit_code}{f' {line}' if line else ''}"

    def _secure_checkpoint(self) -> bool:
        """Whether the job has a checkpoint, now that what it left has been saved. Who cancels it
        by now gives up what the store does not take."""
        self._pulse.phase = Phase.UPLOADING
        self._shipping.stop()
        self._publication.save_checkpoint()
        return self._checkpoints.has_saved

    def _ending(
        self,
        verdict: Verdict,
        reason: Reason | None,
        detail: str | None,
        exit_code: int | None = None,
    ) -> Ending:
        now, started_at = self._repo.now(), self._started_at
        return Ending(
            verdict=verdict,
            reason=reason,
            detail=None if detail is None else moves.clip(self._masked(detail)),
            exit_code=exit_code,
            started_at=started_at,
            ended_at=now,
            ran=ran_until(self._record, self._exited_at or now, started_at=started_at),
            by=self._host.claimant.consumer,
            runs=self._pulse.runs or None,
        )

    # --- the command --------------------------------------------------------------------

    def _wait_for_permission(self) -> None:
        """Returns when a beat has just been accepted. The verify command, which belongs to the
        same start, is not kept waiting for another. A wait of more than a lease is told."""
        self._heed()
        begun = self._repo.clock.monotonic()
        while not self._pulse.may_start():
            self._repo.clock.sleep(self._look_seconds)
            self._heed()
            self._tell_slow_beats(since=begun)
        self._tell_trouble(None)

    def _tell_slow_beats(self, *, since: float) -> None:
        lease_seconds = self._repo.deployment.lease_seconds
        waited_seconds = self._repo.clock.monotonic() - since
        if waited_seconds >= lease_seconds and self._pulse.trouble is None:
            self._tell_trouble(
                f"it cannot start: the store takes longer than {lease_seconds / 2:g} s for a sign "
                "of life"
            )

    def _run_command(self, command: str, phase: Phase) -> int:
        """The exit code. Raises `Cancelled` once a cancel has stopped it, `NotStarted` when it
        could not be started."""
        self._stop_if_cancelled()
        self._stop_if_time_is_up(self._clocks.time_up())
        self._stop_if_paused()
        words = LastWords(self._take_output)
        masked = None
        if self._masker is not None:
            masked = MaskedSink(self._masker, words, self._repo.tasks.lock())
        sink = words if masked is None else masked.append
        with self._refusals():
            process = self._commands.start(
                self._command(command, sink),
                by=self._starter(words),
                when_closed=None if masked is None else masked.finish,
            )
        self._on_started()
        self._exited_at = None
        self._pulse.runs = self._run_number
        self._clocks.note_started()
        self._idle.begin()
        earlier, self._started_at = self._started_at, self._pulse.started_at
        self._pulse.phase = phase
        exit_code = self._attend(process)
        self._commands.end(process)
        self._exited_at = self._repo.now()
        self._pulse.live = None
        self._memory_exceeded = process.memory_exceeded()
        if self._image is not None:
            self._heed_never_started(exit_code, earlier)
        return exit_code

    def _starter(self, words: LastWords) -> Callable[[Command], JobProcess] | None:
        """A job that names an image runs in it or not at all. `words`: what it says, masked."""
        record, image = self._record, self._image
        if record.spec.image is None:
            return None
        assert image is not None  # it has been brought before anything is started
        return lambda command: self._containers.start(command, record, image, words=words)

    def _heed_never_started(self, exit_code: int, earlier: datetime | None) -> None:
        """An engine can fail after its client was started; then this was no start."""
        found = self._containers.never_started(exit_code)
        if found is None:
            return
        self._started_at = earlier
        if earlier is None:
            self._pulse.runs = 0
        if found.by_job:
            raise NotStarted(found.why)
        with self._refusals():
            raise EngineFailed(found.why)

    def _command(self, command: str, sink: Callable[[memoryview], None]) -> Command:
        spec = self._record.spec
        memory_gb = spec.memory_gb
        environment = self._environment()
        return Command(
            name=f"{self._record.id}.{self._record.epoch}",
            argv=self._argv(command, environment),
            environment=environment,
            folder=self._working_folder(spec),
            sink=sink,
            memory_bytes=None if memory_gb is None else round(memory_gb * _GIB),
        )

    def _environment(self) -> dict[str, str]:
        record, workspace, run = self._record, self._workspace, max(1, self._run_number)
        if record.spec.image is not None:
            return contained_environment(record, workspace, self._secrets, body_run=run)
        return command_environment(
            self._host.environment, record, workspace, self._secrets, body_run=run
        )

    def _working_folder(self, spec: Spec) -> Path:
        if spec.host_dir is not None:
            return Path(spec.host_dir)
        within = spec.repo.folder if spec.repo is not None else None
        return self._workspace.work / (within or "")

    def _argv(self, command: str, environment: Mapping[str, str]) -> Sequence[str]:
        if not self._record.spec.strict_shell:
            return plain_argv(command)
        contained = self._record.spec.image is not None
        bash = "bash" if contained else shutil.which("bash", path=environment.get("PATH"))
        if bash is None:
            raise NotStarted("--strict-shell takes bash, and this host has none in its PATH")
        self._shell = StrictShell(bash, self._workspace.failed_line)
        with self._refusals():
            self._shell.prepare()
            argv = self._shell.argv(command)
            return self._containers.with_bash(argv) if contained else argv

    def _attend(self, process: JobProcess) -> int:
        """Waits for the command's end; its log and its checkpoints are shipped meanwhile.

        A command that has ended by itself keeps its outcome, whatever was asked meanwhile."""
        while True:
            exit_code = process.wait(self._look_seconds)
            if exit_code is not None:
                return exit_code
            self._pulse.progress, self._pulse.live = self._reports.progress(), self._reports.live()
            self._heed()
            self._heed_memory(process)
            self._stop_if_time_is_up(
                self._idle.time_up((self._spool.written, self._pulse.progress))
            )
            self._shipping.start()

    def _heed_memory(self, process: JobProcess) -> None:
        """Above its memory all of it is ended: what the kernel leaves of a command, having killed
        one process of many, often waits for that one for ever."""
        exceeded = process.memory_exceeded()
        if exceeded is not None:
            self._pulse.phase = Phase.STOPPING
            self._commands.stop(grace_seconds=0)
            raise TooMuchMemory(exceeded)

    def _heed(self) -> None:
        self._fence()
        self._stop_if_cancelled()
        self._stop_if_time_is_up(self._clocks.time_up())
        self._stop_if_paused()

    def _stop_if_time_is_up(self, time_up: TimeUp | None) -> None:
        """A cancel that was asked for by then goes before."""
        if time_up is None:
            return
        log.info("event=time_up job=%s reason=%s", self._record.id, time_up.reason)
        self._pulse.phase = Phase.STOPPING
        self._commands.stop()
        self._pulse.check_in()
        if self._pulse.cancel_asked:
            raise Cancelled
        raise OutOfTime(time_up)

    def _stop_if_cancelled(self) -> None:
        if self._pulse.cancel_asked:
            self._pulse.phase = Phase.STOPPING
            self._commands.stop()
            raise Cancelled

    def _stop_if_paused(self) -> None:
        """Or put back. A command that has ended by itself is not stopped any more, before it is
        verified."""
        if self._pulse.pause_asked and not self._has_ended:
            self._pulse.phase = Phase.STOPPING
            self._commands.stop()
            raise Paused
        if self._pulse.must_give_way and not self._has_ended:
            self._pulse.phase = Phase.STOPPING
            self._commands.stop()
            raise GivesWay

    def _tell_trouble(self, trouble: str | None) -> None:
        """Others read it in our beats, as long as there are any; the note on this host shows that
        we are at it."""
        self._pulse.trouble = None if trouble is None else self._masked(trouble)
        if trouble is not None:
            self._host.folder.touch_note(self._host.identity.pid)

    # --- log, checkpoints, files --------------------------------------------------------

    def _publish(self, outcome: Ending) -> Ending:
        """The outcome, with what was delivered and what was not."""
        self._pulse.phase = Phase.UPLOADING
        self._shipping.stop()
        return self._publication.publish(outcome)

    def _take_output(self, data: memoryview) -> None:
        with self._printing:
            self._keep_output(data)

    def _keep_output(self, data: memoryview) -> None:
        self._log_times.note(self._spool.written, data)
        self._spool.append(data)

    def _compact_logs(self) -> None:
        """Once all is settled, for nobody waits for it: a log of many segments becomes a few
        objects. What the store does not take stays as it is."""
        if self._decided is None:
            return
        repo, of, most = self._repo, self._shipper.of, self._host.log_limit.segments_max

        def live() -> None:
            self._host.folder.touch_note(self._host.identity.pid)

        try:
            if self._shipper.segments > most:
                times = self._log_times.told(repo.now(), base=of.base)
                compact_log(repo, of.job_id, of.epoch, times=times, segments_max=most, between=live)
            if of.epoch > 1:
                compact_earlier_logs(repo, of.job_id, of.epoch, segments_max=most, between=live)
        except StoreError as error:
            log.warning("event=log_not_compacted job=%s error=%r", of.job_id, str(error))

    # --- what the host refuses ----------------------------------------------------------

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Around what a start takes of this host: what it refuses is why there was none. It is the
        job's own fault where the folder that it asked for cannot be used, or its environment is
        too long; anything else is the host's trouble, until that has happened so often that it
        cannot be. Where things lie on a host is for its log alone."""
        try:
            yield
        except OSError as error:
            text = error.strerror or str(error)
            log.warning("event=refused_by_host path=%s error=%r", error.filename, text)
            if error.errno == errno.E2BIG:
                sizes = sizes_text(self._environment(), self._host.environment)
                raise NotStarted(f"{text}: {sizes}") from None
            if str(error.filename) == self._record.spec.host_dir:
                raise NotStarted(f"{text}: {error.filename}") from error
            given_back = self._record.given_back
            if given_back >= _GIVEN_BACK_MAX:
                raise NotStarted(f"{text}; {given_back} hosts before gave it back") from error
            raise HostUnable(text) from error

    # --- the verdict --------------------------------------------------------------------

    def _finish(self, outcome: Ending) -> None:
        """Gives the verdict and settles; what others decided first is settled instead."""
        if self._is_decided():
            return
        counted = outcome.evolve(requests=self._count.told())
        cell, ours = self._insist(lambda: give_verdict(self._repo, self._as_left(), counted))
        if self._is_decided():
            return
        if ours:
            self._decided = cell
            version = self._claimed.running_version
            self._insist(lambda: settle_own(self._repo, cell, version))
            self._checkpoints.sweep_rest()
        else:
            self._settle()
            if self._adopt(cell):
                raise Carried
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
        the outcome where the command has ended, else lost. A living command, or the outcome of
        one that has ended, is carried over into the next epoch if nobody else has that. Raises
        `Fenced` when we are out of it, `Carried` when an outcome was."""
        if self._pulse.failure is not None:
            raise PulseFailed from self._pulse.failure
        if not self._pulse.sealed or self._decided is not None:
            return
        verdict = self._outcome or self._patience.persist(self._lost)
        verdict = verdict.evolve(requests=self._count.told())
        last = self._patience.persist(lambda: self._repo.find_heartbeat(self._record.id))
        cell, ours = self._patience.persist(
            lambda: give_verdict(self._repo, self._as_left(), verdict)
        )
        if ours and last is not None and last.value.epoch > self._record.epoch:
            self._replace_nobodys_beat(last)
        self._patience.persist(lambda: settle(self._repo, self._record.id, self._record.epoch))
        if ours and self._outcome is not None:
            self._decided = cell
            self._log_end(cell)
        elif not self._adopt(cell):
            raise Fenced
        elif self._outcome is not None:
            raise Carried

    def _replace_nobodys_beat(self, last: Stored[Heartbeat]) -> None:
        """A beat of a later epoch while ours had no verdict: no holder wrote it, and it would
        fence all that come. Nothing is done to one that was written since."""
        by = self._host.claimant.consumer
        self._patience.persist(lambda: seal_epoch(self._repo, self._record, last, by=by))

    def _as_left(self) -> Record:
        """With the priority that somebody gave it just before our claim, where that could not be
        taken over then."""
        if self._claimed.left_in_queue:
            return as_queued_last(self._repo, self._record)
        return self._record

    def _lost(self) -> Ending:
        return ending_of_lost(
            self._repo,
            self._record,
            Loss(
                started_at=self._started_at,
                heard_at=self._exited_at or self._repo.now(),
                by=self._host.claimant.consumer,
                reason=Reason.LEASE_EXPIRED,
                detail="its worker could not give a sign of life in time",
            ),
        )

    def _adopt(self, cell: EndCell) -> bool:
        """Whether the next epoch is ours, with the living command or the outcome of a started one:
        what has been executed is not executed again over a store that was away."""
        lives_or_told = self._commands.current is not None or self._outcome is not None
        has_something = self._started_at is not None and lives_or_told
        if cell.ending.verdict is not Verdict.LOST or not (has_something or self._has_ended):
            return False
        following = moves.after(cell)
        holder = holder_of(self._repo, self._host.claimant, adopts=cell.record.holder)
        slots = self._slots_for(following, holder)
        if slots is None:
            return False
        holder = holder.evolve(slots=slots.names)
        adopted = self._patience.persist(lambda: adopt(self._repo, following, holder, slots))
        if adopted is None:
            return False
        log.warning("event=adopted job=%s epoch=%d", adopted.record.id, adopted.record.epoch)
        self._claimed = adopted
        self._count.begin_epoch(told=cell.ending.requests is not None)
        self._count_on()
        self._shipping.stop()
        self._begin_log_epoch()
        self._pulse.stop()
        phase, runs = self._pulse.phase, self._pulse.runs
        self._pulse = self._new_pulse(adopted.record)
        self._pulse.phase, self._pulse.runs = phase, runs
        self._pulse.started_at = self._started_at
        self._renew_note()
        self._pulse.start()
        self._fence()
        return True

    def _slots_for(self, following: Record, holder: Holder) -> Slots | None:
        """Its places under the limits of when it was claimed; None where others have them by now:
        then it waits for its turn again."""
        try:
            return self._patience.persist(
                lambda: take_slots(self._repo, following, holder, self._rules)
            )
        except ScopeFull as full:
            log.warning("event=not_adopted job=%s why=%r", following.id, str(full))
            return None

    def _count_on(self) -> None:
        """What an outcome counts that was there before the adoption: what the epoch before has is
        not counted again."""
        if self._outcome is None or self._outcome.ran is None:
            return
        started_at, ended_at = self._outcome.started_at, self._outcome.ran.ended_at
        ran = ran_until(self._record, ended_at, started_at=started_at)
        self._outcome = self._outcome.evolve(ran=ran)

    def _write_late(self) -> None:
        """What we still had to say when the epoch had been decided without us."""
        if self._started_at is None:
            return
        living = self._commands.current
        exit_code = living.wait(0) if living is not None else None
        if self._has_ended:
            exit_code = 0
        if self._outcome is not None:
            exit_code = self._outcome.exit_code
        self._commands.stop()
        late = LateResult(
            job_id=self._record.id,
            epoch=self._record.epoch,
            consumer=self._host.claimant.consumer,
            at=self._repo.now(),
            exit_code=exit_code,
            detail="the worker was heard again after its epoch had been ended without it",
        )
        try:
            late = late.evolve(detail=late.detail + self._sealed_policy_text())
            write_late(self._repo, late)
            self._shipping.stop()
            self._shipper.ship_rest()
        except (StoreError, Unreadable, OSError) as error:
            log.warning("event=late_result_lost job=%s error=%r", late.job_id, str(error))

    def _sealed_policy_text(self) -> str:
        """What has become of the checkpoints that nobody waited for. One read of a train job."""
        policy = self._record.policy_id
        if policy is None or self._find_seal() is None:
            return ""
        return f" (policy_sealed: {policy} holds what was saved by then)"

    def _find_seal(self) -> PolicySeal | None:
        return find_seal(self._repo, self._record.id, self._record.policy_revision)

    def _insist(
        self, step: Callable[[], Result], *, answers: tuple[type[StoreError], ...] = ()
    ) -> Result:
        """Repeats a step until the store takes it, or the epoch turns out to be sealed."""
        return self._patience.persist(step, between=self._fence, answers=answers)

    # --- this host ----------------------------------------------------------------------

    def _new_pulse(self, record: Record) -> Pulse:
        pid = self._host.identity.pid
        return Pulse(
            self._repo,
            record,
            on_tick=lambda: self._host.folder.touch_note(pid),
            on_news=self._commands.wake,
        )

    def _begin_log_epoch(self) -> None:
        if self._shipper.unclear:
            self._make_clear_what_was_shipped()
        of = self._shipper.begin_epoch(self._record.epoch)
        try:
            self._workspace.write_log_epoch(of)
        except OSError as error:
            log.warning("event=note_not_written job=%s error=%r", of.job_id, str(error))

    def _make_clear_what_was_shipped(self) -> None:
        try:
            self._patience.persist(self._shipper.make_clear)
        except Unreadable as error:
            self._repo.tell_unreadable(error)
        except OSError as error:
            log.warning("event=spool_not_read job=%s error=%r", self._record.id, str(error))

    def _note_saved(self) -> None:
        """What was done until now is not done again, should the job be put back."""
        self._work_since = self._repo.clock.now()
        if self._record.yields_left:
            self._renew_note()

    def _renew_note(self) -> None:
        """With the epoch that was adopted, or what holds the command together. A disk that is
        full ends no command: should we die, the note names an epoch that is over, and a reaper
        ends the present one."""
        record = self._record
        note = replace(
            self._host.note(self._entry, workspace=self._workspace, epoch=record.epoch),
            priority=record.priority,
            yields_left=record.yields_left,
            work_since=self._work_since.timestamp(),
        )
        try:
            self._host.folder.write_note(note)
        except OSError as error:
            log.warning("event=note_not_written job=%s error=%r", note.job_id, str(error))
