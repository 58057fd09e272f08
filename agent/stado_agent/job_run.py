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
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from stado.core import moves
from stado.core.order import ReadyEntry
from stado.core.records import (
    EndCell,
    Ending,
    Heartbeat,
    JobWarning,
    LateResult,
    Manifest,
    Phase,
    Record,
)
from stado.core.spec import GitRepo, Snapshot, Spec, repo_text
from stado.core.states import Reason, Verdict, WarningCode
from stado.errors import Conflict, NotFound, Refused, StoreError, Unreadable
from stado.jobs import outputs
from stado.jobs.archives import UnsafeArchive
from stado.jobs.claim import Claimant, Claimed, adopt, holder_of
from stado.jobs.endings import ending_of_lost, give_verdict, settle, settle_own, write_late
from stado.jobs.life import seal_epoch
from stado.jobs.log_compaction import compact_earlier_logs, compact_log
from stado.jobs.policy_seals import find_seal
from stado.jobs.repository import Repository, Stored
from stado.jobs.saving import Manner
from stado.jobs.snapshots import text_of as snapshot_text
from stado.ports import Command, JobProcess, Processes, ProcessIdentity
from stado.reports import REFUSED_EXIT_CODE
from stado_agent.checkpoint_sync import CheckpointSync
from stado_agent.command_ending import CommandEnding
from stado_agent.downloads import Interrupted
from stado_agent.elsewhere import Elsewhere, OpenBucket, no_buckets
from stado_agent.environment import command_environment, sizes_text
from stado_agent.git_checkout import (
    CheckoutFailed,
    GitAnswer,
    GitCheckout,
    folder_within,
    git_environment,
)
from stado_agent.host_cache import HostCache
from stado_agent.input_cache import InputCache
from stado_agent.input_fetching import InputFetching, InputUnavailable
from stado_agent.log_shipping import LogEpoch, LogShipper
from stado_agent.log_spool import LogLimit, LogSpool
from stado_agent.log_times import LogTimes
from stado_agent.masking import MaskedSink, Masker
from stado_agent.patience import Patience
from stado_agent.pulse import Pulse
from stado_agent.report_folder import ReportFolder
from stado_agent.second_copy import OpenStore, SecondCopy, no_other_stores
from stado_agent.secrets import SecretRefused, Secrets, SecretSettings, take_secrets
from stado_agent.setup_output import SetupOutput
from stado_agent.shell import StrictShell, plain_argv
from stado_agent.shipping import Shipping
from stado_agent.snapshot_fetch import SnapshotFetch
from stado_agent.workspace import HostFolder, SupervisorNote, Workspace

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_LOOK_SECONDS = 0.5
"""How often a supervisor looks at its command's memory, and whether something was asked for (of
which it is told as well)."""

_OUTPUT_SECONDS = 5.0
"""For what a command printed last, once nothing of it lives."""

_LEFTOVERS_SECONDS_MAX = 60.0
"""After a command has ended by itself, its outcome waits no longer for what it left running and
what cannot be killed. The place on this host is not given away before that is gone."""

_SETUP_SECONDS_MAX = 3600.0
"""For one call of git. A connection over which nothing comes is given up long before."""

_NO_WISHES = Spec(command="")
"""What a job wants in its environment is for its command, not for what prepares it."""

_GIB = 1024**3
LOG_LIMIT_DEFAULT = LogLimit(100 * 1024 * 1024)

_GIVEN_BACK_MAX = 20
"""So often a job is given back by hosts that could not start it; then it is the job that cannot be
started."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a supervisor works, and for whom."""

    processes: Processes
    folder: HostFolder
    claimant: Claimant
    environment: Mapping[str, str]
    identity: ProcessIdentity
    """Of the supervisor's own process."""
    boot_id: str | None = None
    log_limit: LogLimit = LOG_LIMIT_DEFAULT
    open_store: OpenStore = no_other_stores
    cache_bytes: int = 0
    """Of what jobs have fetched that is kept for others."""
    open_bucket: OpenBucket = no_buckets
    checkpoint_bytes_per_second: float | None = None
    """Of one job's saves; None: as fast as the store takes them."""
    secrets: Secrets = field(default_factory=lambda: Secrets(SecretSettings()))
    enclosure: list[Path] = field(default_factory=list)
    """Of the last command: most commands of a supervisor have the same."""

    def input_cache(self, repo: Repository) -> InputCache:
        return InputCache(
            self.folder.inputs,
            limit_bytes=self.cache_bytes,
            clock=repo.clock,
            entropy=repo.entropy,
        )

    def note(
        self, entry: ReadyEntry, *, workspace: Workspace, epoch: int | None = None
    ) -> SupervisorNote:
        """What this supervisor writes down about the job in its hands."""
        return SupervisorNote(
            supervisor=self.identity,
            job_id=entry.job_id,
            epoch=entry.epoch if epoch is None else epoch,
            needs=entry.needs,
            workspace=workspace.root.name,
            boot_id=self.boot_id,
            enclosure=tuple(str(folder) for folder in self.enclosure),
        )


class _Fenced(Exception):
    """The epoch was ended without us: nothing more may be written for it."""


class _Carried(Exception):
    """The outcome belongs to the next epoch now: it is delivered anew, under that."""


class _Cancelled(Exception):
    """A cancel was asked for, and everything that the command started has been stopped."""


class _GivenUp(Exception):
    """A cancel came while the store did not take what the job left."""


class _NotStarted(Exception):
    """What was asked for cannot be started: nothing of it has run."""


class _HostUnable(Exception):
    """This host has no room to start anything: nothing of the job has run."""


class _TooMuchMemory(Exception):
    """The command was ended because of its memory."""


class _PulseFailed(Exception):
    """The pulse has ended by an error that nobody foresaw: the supervisor ends, too."""


class _InputUnavailable(Exception):
    """Something that the job starts from cannot be had."""


class JobRun:
    """One job, over one epoch or, once adopted, more."""

    def __init__(
        self,
        repo: Repository,
        host: Host,
        claimed: Claimed,
        entry: ReadyEntry,
        *,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        self._repo = repo
        self._on_started = on_started
        self._host = host
        self._claimed = claimed
        self._entry = entry
        self._look_seconds = min(_LOOK_SECONDS, repo.deployment.tick_seconds)
        self._workspace = host.folder.workspace(claimed.record.id, claimed.record.epoch)
        of = LogEpoch(claimed.record.id, claimed.record.epoch)
        limit = host.log_limit
        self._spool = LogSpool(self._workspace.log, limit, repo.tasks.lock())
        self._log_times = LogTimes(repo.clock)
        self._shipper = LogShipper(repo, self._spool, limit, of)
        self._checkpoints = CheckpointSync(
            repo,
            self._workspace.checkpoints,
            manner=Manner(bytes_per_second=host.checkpoint_bytes_per_second),
            heard_at=lambda: self._pulse.heard_at,
        )
        self._shipping = Shipping(
            repo, self._shipper, self._checkpoints, look_seconds=_LOOK_SECONDS
        )
        self._patience = Patience(
            repo.clock, repo.entropy, job_id=claimed.record.id, tell=self._tell_trouble
        )
        self._secrets: dict[str, str] = {}
        self._masker: Masker | None = None
        """None as long as no secret is known."""
        self._masked_sinks: dict[ProcessIdentity, MaskedSink] = {}
        self._shell: StrictShell | None = None
        """Of the command that was started last, where it is strict."""
        self._reports = ReportFolder(self._workspace.report, self._masked)
        self._process: JobProcess | None = None
        self._undead: list[JobProcess] = []
        """Commands that have ended, and left what could not be killed."""
        self._cancel_asked_before: bool | None = None
        """Whether a cancel was asked for before anything was delivered."""
        self._has_ended = False
        """Whether the command has ended by itself: what it did is not done again, although its
        outcome is not known yet."""
        self._memory_exceeded: str | None = None
        self._started_at: datetime | None = None
        self._outcome: Ending | None = None
        self._decided: EndCell | None = None
        self._pulse = self._new_pulse(claimed.record)

    @property
    def _record(self) -> Record:
        return self._claimed.record

    def run(self) -> str | None:
        """From the claim to the settled verdict; the workspace is gone afterwards, unless an error
        ends us: then the agent has it salvaged. What this host could not do, when that is why the
        epoch was given back."""
        in_order = False
        try:
            if not self._prepares_for_long():
                self._announce_start()
            self._pulse.start()
            self._outcome = self._work()
            while not self._has_delivered(self._outcome):
                continue
            in_order = True
        except _Fenced:
            self._write_late()
            in_order = True
        finally:
            self._shipping.stop()
            self._pulse.stop()
            self._stop_all()
            self._spool.close()
            if in_order:
                self._workspace.remove()
        self._compact_logs()
        unable = self._outcome is not None and self._outcome.reason is Reason.HOST_UNABLE
        return self._outcome.detail if self._outcome is not None and unable else None

    def _has_delivered(self, outcome: Ending) -> bool:
        """False when the epoch was taken from us on the way and we adopted the next one. That ends
        when the job has been lost too often."""
        try:
            self._finish(self._publish(outcome))
        except _Carried:
            return False
        return True

    # --- from preparation to the outcome ------------------------------------------------

    def _work(self) -> Ending:
        try:
            self._prepare()
            return self._execute()
        except _Cancelled:
            doing = "running" if self._started_at is not None else "being prepared"
            detail = f"cancelled while it was {doing}"
            return self._ending(Verdict.CANCELLED, Reason.CANCELLED, detail)
        except _NotStarted as error:
            detail = f"the host could not start it: {error}"
            return self._ending(Verdict.FAILED, Reason.LAUNCH_FAILED, detail)
        except _HostUnable as error:
            detail = f"the host has no room to start it: {error}"
            return self._ending(Verdict.LOST, Reason.HOST_UNABLE, detail)
        except _TooMuchMemory as error:
            return self._too_much_memory(str(error))
        except _InputUnavailable as error:
            return self._ending(Verdict.FAILED, Reason.INPUT_UNAVAILABLE, str(error))

    def _prepare(self) -> None:
        self._fence()
        with self._refusals():
            self._workspace.make()
        if self._prepares_for_long():
            if self._record.spec.inputs:
                self._fetch_inputs()
            self._restore_checkpoint()
            if self._record.spec.secrets:
                self._take_secrets()
            self._bring_code()
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

    def _fetch_inputs(self) -> None:
        elsewhere = Elsewhere(self._host.open_bucket)
        fetching = InputFetching(
            self._repo,
            self._workspace.inputs,
            cache=self._host.input_cache(self._repo),
            elsewhere=elsewhere,
            heed=self._break_off,
        )
        try:
            for wanted in self._record.spec.inputs:
                with self._refusals():
                    self._patience.persist(
                        partial(fetching.fetch, wanted),
                        between=self._heed,
                        look_seconds=self._look_seconds,
                    )
        except InputUnavailable as error:
            raise _InputUnavailable(str(error)) from error
        except Interrupted:
            self._heed()
            raise
        finally:
            elsewhere.close()

    def _break_off(self) -> None:
        """For threads that must not act for the job themselves: whether `_heed` has something to
        do."""
        if self._pulse.cancel_asked or self._pulse.sealed or self._pulse.failure is not None:
            raise Interrupted

    def _restore_checkpoint(self) -> None:
        """Its own newest one; of a job that has none the one that it was to start from."""
        job_id, start_from = self._record.id, self._record.spec.start_from
        own = self._record.epoch > 1 and self._restore(
            lambda: self._checkpoints.restore_newest(job_id, between=self._heed),
            "no checkpoint of it can be restored",
        )
        if not own and start_from is not None:
            self._restore(
                lambda: self._checkpoints.restore_pinned(start_from, between=self._heed),
                f"checkpoint {start_from.ref} cannot be restored",
            )

    def _restore(self, step: Callable[[], Result], what: str) -> Result:
        try:
            with self._refusals():
                return self._insist(step, answers=(NotFound, Conflict))
        except (Conflict, NotFound, Refused, Unreadable) as error:
            raise _InputUnavailable(f"{what}: {error}") from error

    def _take_secrets(self) -> None:
        """From here on what the command prints, and what is said about it, is masked."""
        try:
            self._secrets = take_secrets(
                self._host.secrets,
                self._record.spec.secrets,
                clock=self._repo.clock,
                entropy=self._repo.entropy,
                heed=self._heed,
                tell=self._tell_trouble,
            )
        except SecretRefused as error:
            raise _InputUnavailable(str(error)) from None
        self._masker = Masker(self._secrets.values())

    def _masked(self, text: str) -> str:
        return text if self._masker is None else self._masker.text(text)

    def _bring_code(self) -> None:
        """After the checkpoint: from now on the log is shipped, and what is in the checkpoint
        folder saved, while git works."""
        spec = self._record.spec
        try:
            with self._refusals():
                if spec.snapshot is not None:
                    self._bring_snapshot(spec.snapshot)
                if spec.repo is not None:
                    self._check_out(spec.repo)
        except (CheckoutFailed, Conflict, Refused, Unreadable, UnsafeArchive) as error:
            what = "snapshot" if spec.snapshot is not None else "repository"
            detail = f"its {what} cannot be had: {error}"
            self._say(detail)
            raise _InputUnavailable(detail) from error

    def _bring_snapshot(self, snapshot: Snapshot) -> None:
        cache = HostCache(self._host.folder.snapshots, self._repo.clock)

        def insist(step: Callable[[], None]) -> None:
            self._patience.persist(step, between=self._heed, answers=(Conflict,))

        fetch = SnapshotFetch(self._repo, cache, insist=insist, heed=self._heed)
        fetch.bring(snapshot, self._workspace.work)
        self._say(snapshot_text(snapshot))

    def _check_out(self, repo: GitRepo) -> None:
        self._say(f"checking out {repo_text(repo)}")
        cache = HostCache(self._host.folder.repos, self._repo.clock)
        GitCheckout(cache, self._run_git, self._heed).check_out(repo, self._workspace.work)
        folder_within(self._workspace.work, repo.folder)
        if (self._workspace.work / ".gitmodules").exists():
            self._say("its submodules are not fetched")

    def _run_git(self, argv: Sequence[str], folder: Path) -> GitAnswer:
        """As a process of the job, that a cancel ends. It is no start of the job."""
        output = SetupOutput(self._spool.append)
        inherited = command_environment(
            self._host.environment, self._record.evolve(spec=_NO_WISHES), self._workspace
        )
        command = Command(
            name=f"{self._record.id}.{self._record.epoch}.git",
            argv=argv,
            environment=git_environment(inherited),
            folder=folder,
            sink=output,
        )
        try:
            process = self._start(command)
        except FileNotFoundError as error:
            if error.filename != argv[0]:
                raise
            host = self._host.claimant.host
            raise CheckoutFailed(f"git is not installed on {host}: install it there") from None
        exit_code = self._attend_setup(process)
        self._end_process(process)
        output.flush()
        return GitAnswer(exit_code, output.lines)

    def _attend_setup(self, process: JobProcess) -> int:
        end = self._repo.clock.monotonic() + _SETUP_SECONDS_MAX
        while True:
            exit_code = process.wait(self._look_seconds)
            if exit_code is not None:
                return exit_code
            self._heed()
            self._shipping.start()
            if self._repo.clock.monotonic() > end:
                self._stop_process()
                raise CheckoutFailed(f"git took longer than {_SETUP_SECONDS_MAX:g} s")

    def _say(self, text: str) -> None:
        """A line of ours in the job's log, before the command's."""
        line = f"[stado] {text}\n".encode("utf-8", "backslashreplace")
        self._spool.append(memoryview(line))

    def _too_much_memory(self, detail: str, exit_code: int | None = None) -> Ending:
        reason = Reason.MEMORY_LIMIT_EXCEEDED
        return self._ending(Verdict.FAILED, reason, detail, exit_code)

    def _execute(self) -> Ending:
        """The outcome of commands that end by themselves, down to the first that fails."""
        spec = self._record.spec
        for what, command in (("the pre-command", spec.pre_command), ("the command", spec.command)):
            exit_code = 0 if command is None else self._run_command(command, Phase.RUNNING)
            if exit_code != 0:
                return self._failed(what, command or "", exit_code)
        self._has_ended = True
        if spec.needs_checkpoint and not self._secure_checkpoint():
            detail = "no checkpoint was saved"
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
        line = None if self._shell is None else self._shell.failed_line(command)
        return f"{what} exited with {exit_code}{f' {line}' if line else ''}"

    def _secure_checkpoint(self) -> bool:
        """Whether the job has a checkpoint, now that what it left has been saved. Who cancels it
        by now gives up what the store does not take."""
        self._pulse.phase = Phase.UPLOADING
        self._shipping.stop()
        self._deliver("checkpoint", self._save_rest)
        return self._checkpoints.has_saved

    def _save_rest(self) -> None:
        self._checkpoints.save_rest(self._record.id, self._record.epoch)

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
            detail=None if detail is None else moves.clip(self._masked(detail)),
            exit_code=exit_code,
            started_at=self._started_at,
            ended_at=self._repo.now(),
            by=self._host.claimant.consumer,
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
        """The exit code. Raises `_Cancelled` once a cancel has stopped it, `_NotStarted` when it
        could not be started."""
        self._stop_if_cancelled()
        masked = None
        if self._masker is not None:
            masked = MaskedSink(self._masker, self._take_output, self._repo.tasks.lock())
        sink = self._take_output if masked is None else masked.append
        with self._refusals():
            process = self._start(self._command(command, sink))
        if masked is not None:
            self._masked_sinks[process.identity] = masked
        self._on_started()
        self._started_at = self._pulse.started_at
        self._pulse.phase = phase
        exit_code = self._attend(process)
        self._end_process(process)
        self._memory_exceeded = process.memory_exceeded()
        return exit_code

    def _start(self, command: Command) -> JobProcess:
        """Raises `OSError`."""
        process = self._host.processes.start(command)
        self._process = process
        if list(process.enclosure) != self._host.enclosure:
            self._host.enclosure[:] = process.enclosure
            self._renew_note()
        return process

    def _end_process(self, process: JobProcess) -> None:
        """One that has ended by itself, with whatever it left running."""
        if self._ending_of(process).end_leftovers(patience_seconds=_LEFTOVERS_SECONDS_MAX):
            self._close(process)
        else:
            self._undead.append(process)
        self._process = None

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
        return command_environment(
            self._host.environment, self._record, self._workspace, self._secrets
        )

    def _working_folder(self, spec: Spec) -> Path:
        if spec.host_dir is not None:
            return Path(spec.host_dir)
        within = spec.repo.folder if spec.repo is not None else None
        return self._workspace.work / (within or "")

    def _argv(self, command: str, environment: Mapping[str, str]) -> Sequence[str]:
        if not self._record.spec.strict_shell:
            return plain_argv(command)
        bash = shutil.which("bash", path=environment.get("PATH"))
        if bash is None:
            raise _NotStarted("--strict-shell takes bash, and this host has none in its PATH")
        self._shell = StrictShell(bash, self._workspace.failed_line)
        with self._refusals():
            self._shell.prepare()
        return self._shell.argv(command)

    def _attend(self, process: JobProcess) -> int:
        """Waits for the command's end; its log and its checkpoints are shipped meanwhile.

        A command that has ended by itself keeps its outcome, whatever was asked meanwhile."""
        while True:
            exit_code = process.wait(self._look_seconds)
            if exit_code is not None:
                return exit_code
            self._pulse.progress = self._reports.progress()
            self._heed()
            self._heed_memory(process)
            self._shipping.start()

    def _heed_memory(self, process: JobProcess) -> None:
        """Above its memory all of it is ended: what the kernel leaves of a command, having killed
        one process of many, often waits for that one for ever."""
        exceeded = process.memory_exceeded()
        if exceeded is not None:
            self._pulse.phase = Phase.STOPPING
            self._stop_process(grace_seconds=0)
            raise _TooMuchMemory(exceeded)

    def _heed(self) -> None:
        self._fence()
        self._stop_if_cancelled()

    def _stop_if_cancelled(self) -> None:
        if self._pulse.cancel_asked:
            self._pulse.phase = Phase.STOPPING
            self._stop_process()
            raise _Cancelled

    def _stop_process(self, *, grace_seconds: float | None = None) -> None:
        """Returns when nothing of the command lives any more."""
        if self._process is None:
            return
        if grace_seconds is None:
            grace_seconds = self._repo.deployment.cancel_grace_seconds
        self._ending_of(self._process).stop(grace_seconds=grace_seconds)
        self._close(self._process)
        self._process = None

    def _stop_all(self) -> None:
        """Also what earlier commands left: its place on this host is not given away before."""
        self._stop_process()
        for process in self._undead:
            self._ending_of(process).stop(grace_seconds=0)
            self._close(process)

    def _close(self, process: JobProcess) -> None:
        if not process.close(_OUTPUT_SECONDS):
            log.warning("event=output_cut_off job=%s", self._record.id)
        masked = self._masked_sinks.pop(process.identity, None)
        if masked is not None:
            masked.finish()

    def _ending_of(self, process: JobProcess) -> CommandEnding:
        return CommandEnding(
            self._repo.clock,
            self._host.processes,
            process,
            job_id=self._record.id,
            tell=self._tell_trouble,
        )

    def _tell_trouble(self, trouble: str | None) -> None:
        """Others read it in our beats, as long as there are any; the note on this host shows that
        we are at it."""
        self._pulse.trouble = None if trouble is None else self._masked(trouble)
        if trouble is not None:
            self._host.folder.touch_note(self._host.identity.pid)

    # --- log, checkpoints, files --------------------------------------------------------

    def _publish(self, outcome: Ending) -> Ending:
        """What the job leaves: its log, its last checkpoint, its files. Tried until it succeeds:
        a store that is away never costs a second execution. Who cancels the job by now gives up
        what cannot be delivered; the outcome stays, and tells of it."""
        partial = outcome.verdict is not Verdict.COMPLETED
        self._pulse.phase = Phase.UPLOADING
        self._shipping.stop()
        self._deliver("log", self._shipper.ship_rest)
        unsaved = outcome.reason is Reason.NO_CHECKPOINT_SAVED
        if partial and not unsaved and self._started_at is not None:  # else it is half restored
            self._deliver("checkpoint", self._save_rest)
        return self._publish_output(outcome)

    def _publish_output(self, outcome: Ending) -> Ending:
        publisher = outputs.OutputPublisher(
            self._repo,
            job_id=self._record.id,
            epoch=self._record.epoch,
            folder=self._workspace.output,
        )
        published: list[Manifest] = []

        def publish() -> None:
            manifest = publisher.publish(
                partial=outcome.verdict is not Verdict.COMPLETED,
                log=self._shipper.account(),
                recordings=outcome.verdict is not Verdict.CANCELLED,
            )
            published.extend([manifest] if manifest is not None else [])

        failure = self._deliver("output", publish)
        if failure is not None:
            return _with_warning(outcome, WarningCode.OUTPUT_UNDELIVERED, failure)
        if not published:
            return outcome
        return self._copied_elsewhere(_telling_of(outcome, published[0]), published[0])

    def _copied_elsewhere(self, outcome: Ending, manifest: Manifest) -> Ending:
        uri = self._record.spec.output_uri
        if uri is None or not manifest.files:
            return outcome
        copy = SecondCopy(self._repo, self._host.open_store)
        try:
            failure = copy.make(uri, manifest, self._workspace.output, heed=self._heed_giving_up)
        except _GivenUp:
            failure = "the job was cancelled meanwhile"
        if failure is None:
            return outcome
        log.warning("event=output_uri_failed job=%s why=%r", self._record.id, failure)
        told = f"the output could not be copied to {uri}: {failure}"
        return _with_warning(outcome, WarningCode.OUTPUT_URI_FAILED, told)

    def _deliver(self, what: str, step: Callable[[], object]) -> str | None:
        """An outcome that is known is never lost over what this host cannot read, or over what
        nobody waits for any more: a cancel that comes now gives up what the store does not take.
        Why it was not delivered; None when it was."""
        if self._cancel_asked_before is None:
            self._cancel_asked_before = self._pulse.cancel_asked
        try:
            self._patience.persist(step, between=self._heed_giving_up)
        except (OSError, _GivenUp) as error:
            log.error(
                "event=undelivered what=%s job=%s error=%r", what, self._record.id, str(error)
            )
            if isinstance(error, _GivenUp):
                return f"the job was cancelled before the store took its {what}"
            return f"its {what} could not be delivered: {error}"
        return None

    def _heed_giving_up(self) -> None:
        self._fence()
        if self._pulse.cancel_asked and not self._cancel_asked_before:
            raise _GivenUp

    def _take_output(self, data: memoryview) -> None:
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
        cannot be."""
        try:
            yield
        except OSError as error:
            where = f": {error.filename}" if error.filename is not None else ""
            text = f"{error.strerror or error}{where}"
            if error.errno == errno.E2BIG:
                sizes = sizes_text(self._environment(), self._host.environment)
                raise _NotStarted(f"{text}: {sizes}") from None
            if str(error.filename) == self._record.spec.host_dir:
                raise _NotStarted(text) from error
            given_back = self._record.epoch - 1 - self._record.lease_losses
            if given_back >= _GIVEN_BACK_MAX:
                raise _NotStarted(f"{text}; {given_back} hosts before gave it back") from error
            raise _HostUnable(text) from error

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
            self._checkpoints.sweep_rest()
        else:
            self._settle()
            if self._adopt(cell):
                raise _Carried
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
        `_Fenced` when we are out of it, `_Carried` when an outcome was."""
        if self._pulse.failure is not None:
            raise _PulseFailed from self._pulse.failure
        if not self._pulse.sealed or self._decided is not None:
            return
        verdict = self._outcome or self._patience.persist(self._lost)
        last = self._patience.persist(lambda: self._repo.find_heartbeat(self._record.id))
        cell, ours = self._patience.persist(lambda: give_verdict(self._repo, self._record, verdict))
        if ours and last is not None and last.value.epoch > self._record.epoch:
            self._replace_nobodys_beat(last)
        self._patience.persist(lambda: settle(self._repo, self._record.id, self._record.epoch))
        if ours and self._outcome is not None:
            self._decided = cell
            self._log_end(cell)
        elif not self._adopt(cell):
            raise _Fenced
        elif self._outcome is not None:
            raise _Carried

    def _replace_nobodys_beat(self, last: Stored[Heartbeat]) -> None:
        """A beat of a later epoch while ours had no verdict: no holder wrote it, and it would
        fence all that come. Nothing is done to one that was written since."""
        by = self._host.claimant.consumer
        self._patience.persist(lambda: seal_epoch(self._repo, self._record, last, by=by))

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
        """Whether the next epoch is ours, with the living command or the outcome of a started one:
        what has been executed is not executed again over a store that was away."""
        started = self._started_at is not None
        has_something = (started and (self._process is not None or self._outcome is not None)) or (
            self._has_ended
        )
        if cell.ending.verdict is not Verdict.LOST or not has_something:
            return False
        following = moves.after(cell)
        holder = holder_of(self._repo, self._host.claimant, adopted=True)
        adopted = self._patience.persist(lambda: adopt(self._repo, following, holder))
        if adopted is None:
            return False
        log.warning("event=adopted job=%s epoch=%d", adopted.record.id, adopted.record.epoch)
        self._claimed = adopted
        self._shipping.stop()
        self._begin_log_epoch()
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
        if self._has_ended:
            exit_code = 0
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
            late = late.evolve(detail=late.detail + self._sealed_policy_text())
            write_late(self._repo, late)
            self._shipping.stop()
            self._shipper.ship_rest()
        except (StoreError, Unreadable, OSError) as error:
            log.warning("event=late_result_lost job=%s error=%r", late.job_id, str(error))

    def _sealed_policy_text(self) -> str:
        """What has become of the checkpoints that nobody waited for. One read of a train job."""
        policy = self._record.policy_id
        if policy is None or find_seal(self._repo, self._record.id) is None:
            return ""
        return f" (policy_sealed: {policy} holds what was saved by then)"

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
            on_news=self._wake,
        )

    def _wake(self) -> None:
        """Whoever waits for the command shall look what has come."""
        process = self._process
        if process is not None:
            process.wake()

    def _begin_log_epoch(self) -> None:
        of = self._shipper.begin_epoch(self._record.epoch)
        try:
            self._workspace.write_log_epoch(of)
        except OSError as error:
            log.warning("event=note_not_written job=%s error=%r", of.job_id, str(error))

    def _renew_note(self) -> None:
        """With the epoch that was adopted, or what holds the command together. A disk that is
        full ends no command: should we die, the note names an epoch that is over, and a reaper
        ends the present one."""
        note = self._host.note(self._entry, workspace=self._workspace, epoch=self._record.epoch)
        try:
            self._host.folder.write_note(note)
        except OSError as error:
            log.warning("event=note_not_written job=%s error=%r", note.job_id, str(error))


def _with_warning(outcome: Ending, code: WarningCode, detail: str) -> Ending:
    return outcome.evolve(
        warnings=[*outcome.warnings, JobWarning(code=code, detail=moves.clip(detail))]
    )


def _telling_of(outcome: Ending, manifest: Manifest) -> Ending:
    """With what was delivered, and what was not."""
    told = outcome.evolve(
        output_files=len(manifest.files), output_bytes=sum(file.size for file in manifest.files)
    )
    lacking = outputs.left_out(manifest.skipped)
    if not lacking:
        return told
    more = f", and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
    return _with_warning(told, WarningCode.OUTPUT_LEFT_OUT, f"{lacking[0]}{more}")
