"""Jobs from Python: submitted, waited for, read; the same use cases as the command line's.

A `Job` is a name and nothing else: it can be made anew from an id or a run id, sent to another
process, or forgotten, and the job goes on. Each function takes `store`, `endpoint`, `region` and
`context` as the command line does, and otherwise goes by the same variables and config file.
"""

from __future__ import annotations

import codecs
import itertools
import logging
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast, overload

from stado import composition
from stado.core import ids
from stado.core.arrays import Array, make_array, parse_array
from stado.core.envelope import with_cards
from stado.core.profiles import merged
from stado.core.records import LINE_MAX, Record
from stado.core.spec import Request, checked_spec, make_request
from stado.core.stated import stated_fields
from stado.core.states import Leftover, State
from stado.errors import (
    Conflict,
    JobCancelled,
    JobError,
    JobFailed,
    JobTimedOut,
    NotFinished,
    Refused,
    ResultLost,
)
from stado.jobs.changes import cancel, pause, resume
from stado.jobs.downloads import download
from stado.jobs.expired import check_there, going_text, told_expired
from stado.jobs.finding import find_job
from stado.jobs.followers import FollowerNote
from stado.jobs.job_log import JobLog, LogPiece
from stado.jobs.priority import set_priority
from stado.jobs.repository import Repository
from stado.jobs.results import (
    RESULT_LEFT_OUT,
    RESULT_MISSING,
    RESULT_UNDELIVERED,
    read_result,
)
from stado.jobs.sight import JobSight, Pace, Patience, present_record
from stado.jobs.status import life_of
from stado.jobs.submission import job_ids_of
from stado.jobs.submit import submit as submit_request
from stado.pinning import Submitter, Unpinned, pin
from stado.profile_files import profile_folder
from stado.settings import Settings, did_you_mean
from stado.system.account import account_name

log = logging.getLogger(__name__)

_LOG_PAUSE_SECONDS = 1.0
"""A log is shipped no more often."""

_LOG_PAUSE_SECONDS_MAX = 3.0


class JobOptions(TypedDict, total=False):
    """What jobs are: the options of `stado submit`, under the same names."""

    profile: str | None
    priority: int
    cpu: float | None
    memory_gb: float | None
    gpus: int | str | None
    gpu_type: str | None
    vram_gb: float | None
    disk_gb: float | None
    exclusive: bool
    pinned_host: str | None
    label: Sequence[str]
    machine_type: str | None
    provider: str | None
    pin_provider: bool
    spot: bool | None
    max_cost_per_hour: float | None
    boot_disk_gb: float | None
    model: str | None
    runtime_seconds_estimate: int | None
    group: str | None
    not_before: datetime | None
    yieldable: bool
    max_yields: int | None
    deadline_at: datetime | None
    timeout: int | None
    idle_timeout: int | None
    body_retries: int
    retries: int | None
    retry_on: Sequence[str]
    retry_delay: int | None
    final: bool
    notify: Sequence[str]
    max_lease_losses: int | Literal["unlimited"] | None
    terminates_agent: bool
    verify: str | None
    host_dir: str | os.PathLike[str] | None
    pre_command: str | None
    strict_shell: bool
    image: str | None
    env: Mapping[str, str]
    secret_env: Mapping[str, str]
    expect_output: Sequence[str]
    output_uri: str | None
    tag: Sequence[str]
    type: str
    require_checkpoint: bool
    start_from: str | None
    input_artifact: Mapping[str, str]
    workdir: str | os.PathLike[str] | None
    workdir_limit_mb: float | None
    require_clean: bool
    repo: str | None
    repo_ref: str | None
    repo_workdir: str | None
    after: Sequence[str]
    then: Mapping[str, str]
    then_parallel: bool
    then_checkpoint: str | None
    then_cpu: float | None
    then_memory_gb: float | None
    then_gpus: int | None


@dataclass(frozen=True, slots=True)
class Status:
    """A job at the moment when it was looked at."""

    state: str
    """`queued`, `running`, `paused`, `completed`, `failed`, `cancelled` or `timed_out`."""
    epoch: int
    """How often it has been started anew, and one."""
    at_rest: bool
    """Whether nothing happens to it until somebody asks for it."""
    phase: str | None = None
    """What a running one is doing, by its worker's last beat: `running`, `uploading` …"""
    progress: float | None = None
    """From 0 to 1, as a running one reports it."""
    progress_text: str | None = None
    reason: str | None = None
    """Why it ended as it did, or is queued again, in a word: `job_failed`, `lease_expired` …"""
    detail: str | None = None
    """The same in a sentence."""
    exit_code: int | None = None
    """Of its command; negative: the signal that ended it."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that was submitted. Two are equal when they name the same one."""

    id: str
    run_id: str
    settings: Settings = field(repr=False)
    """The store that it is in."""

    def status(self) -> Status:
        """The job as it is now."""
        repo = _repository(self.settings)
        return _status(repo, present_record(repo, self.id))

    def wait(self, timeout: float | None = None) -> Status:
        """Returns once the job has ended, however it did; a pause is waited through, with a
        warning. Raises `NotFinished` after `timeout` seconds, and what the store raises when it
        has been away for minutes; the job goes on then, and can be waited for again."""
        repo = _repository(self.settings)
        return _status(repo, self._wait(repo, timeout))

    def result(self, timeout: float | None = None) -> Any:
        """What the job wrote with `stado.result`, or as `result.json` into its output folder, once
        it has completed; None when it left none. Waits as `wait` does.

        Raises `JobFailed`, `JobCancelled` or `JobTimedOut`, each with `reason` and `detail`, for a
        job that ended otherwise, and `ResultLost` for a result that did not come."""
        repo = _repository(self.settings)
        record = self._wait(repo, timeout)
        _raise_unless_completed(record)
        return _find_result(repo, record)

    def logs(self, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """The lines that the job has printed, over all of its epochs; `tail`: the last so many.
        `follow`: goes on until the job has ended, through its pauses.

        Where bytes were dropped, where an epoch begins, and before a log that was to go and may not
        be whole, a line says so: `[stado: …]`. Raises
        `Refused` (`log_expired`) for a log that the deployment does not keep any more."""
        repo = _repository(self.settings)
        record = present_record(repo, self.id)
        whole = JobLog(repo, self.id, up_to_epoch=record.epoch, lines=tail)
        if not whole.found:
            check_there(repo, record, Leftover.LOG)
        going = going_text(repo, record, Leftover.LOG)
        told = [] if going is None else [f"[stado: {going}]"]
        pieces = _lines(self._pieces(repo, JobSight(repo, record), whole, follow=follow))
        return itertools.chain(told, pieces)

    def cancel(self) -> bool:
        """Cancels the job: a queued one at once, a running one at its worker's next check-in, which
        `wait` waits for. Steps (`then`) do not follow it, even where it completes before.
        Whether there was anything to cancel: False for a job that had ended."""
        answer = cancel(_repository(self.settings), self.id, by=account_name(os.environ))
        return answer.stopped_now or answer.asked is not None

    def set_priority(self, priority: int) -> bool:
        """Gives a queued job another place in the queue: higher starts first, then older. Whether
        that changed anything: False where it has this priority already.

        Raises `Refused`: `priority_negative`, `priority_too_large`, and `job_not_queued` with the
        state of a job that waits no more, which stays as it is."""
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise TypeError(f"a priority is a whole number, not {priority!r}")
        receipt = set_priority(
            _repository(self.settings), self.id, priority, by=account_name(os.environ)
        )
        return receipt.changed_now

    def pause(self, reason: str | None = None) -> bool:
        """Stops the job for a while: a queued one at once, a running one at its worker's next
        check-in, after which what is in its checkpoint folder is saved. It holds nothing then, and
        waits for `resume`. `reason`: kept with the job, for others to read.

        Whether there was anything to pause: False for a job that had ended, or was paused."""
        answer = pause(
            _repository(self.settings), self.id, by=account_name(os.environ), note=_note(reason)
        )
        return answer.stopped_now or answer.asked is not None

    def resume(self, reason: str | None = None) -> None:
        """Queues a paused job again: it goes on from its newest checkpoint, on whichever host takes
        it. Raises `Refused` (`job_not_paused`) with the state of a job that is not paused."""
        resume(_repository(self.settings), self.id, by=account_name(os.environ), note=_note(reason))

    def outputs(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Downloads what the job left, its log (`log.txt`) and manifest too, into a folder that is
        new, empty, or holds a download of this job; the paths of its own files. Each is checked by
        size and SHA-256. Raises `Refused` for a folder that holds anything else, and
        (`outputs_expired`) for what the deployment does not keep any more."""
        repo, target = _repository(self.settings), Path(folder)
        record = present_record(repo, self.id)
        with told_expired(repo, record):
            downloaded = download(
                repo, job_id=self.id, epoch=record.epoch, folder=target, state=record.state
            )
        return [target / file.path for file in downloaded.files]

    def _wait(self, repo: Repository, timeout: float | None) -> Record:
        began = repo.clock.monotonic()
        patience = self._patience(repo)
        sight = JobSight(repo, patience.call(lambda: present_record(repo, self.id)))
        pace = Pace(repo.clock)
        pauses = _Pauses()
        while not sight.record.state.terminal:
            pauses.tell(sight.record)
            waited_seconds = repo.clock.monotonic() - began
            left = math.inf if timeout is None else timeout - waited_seconds
            if left <= 0:
                raise NotFinished(
                    self.id,
                    f"job {self.id} is {sight.record.state.value} after {waited_seconds:.0f} s of "
                    f"waiting: {_goes_on(sight.record)}, and can be waited for again",
                )
            pace.pause(seconds_max=left)
            patience.call(sight.look)
        return sight.record

    def _pieces(
        self, repo: Repository, sight: JobSight, whole: JobLog, *, follow: bool
    ) -> Iterator[LogPiece]:
        patience = self._patience(repo)
        pace = Pace(repo.clock, seconds_min=_LOG_PAUSE_SECONDS, seconds_max=_LOG_PAUSE_SECONDS_MAX)
        note = FollowerNote(repo, self.id)
        pauses = _Pauses()
        while True:
            record = sight.record
            if follow and record.state is State.RUNNING:
                note.renew_when_due()
            if not pauses.told(record):
                for piece in _patiently(patience, whole, record):
                    pace.quicken()
                    yield piece
            if record.state.terminal or not follow:
                return
            pauses.tell(record)
            pace.pause()
            if patience.call(sight.look) != record:
                pace.quicken()

    def _patience(self, repo: Repository) -> Patience:
        return Patience(repo.clock, meanwhile=f"job {self.id} goes on", tell=log.warning)


@overload
def submit(
    command: str | None = None,
    *,
    run_id: str,
    store: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    context: str | None = None,
    **options: Unpack[JobOptions],
) -> Job: ...


@overload
def submit(
    command: str | None = None,
    *,
    array: str,
    run_id: str,
    store: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    context: str | None = None,
    **options: Unpack[JobOptions],
) -> list[Job]: ...


@overload
def submit(
    *,
    commands: Sequence[str],
    run_id: str,
    store: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    context: str | None = None,
    **options: Unpack[JobOptions],
) -> list[Job]: ...


def submit(  # noqa: PLR0913 - what there is to submit, and where: by name
    command: str | None = None,
    *,
    commands: Sequence[str] | None = None,
    array: str | None = None,
    run_id: str,
    store: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    context: str | None = None,
    **options: Unpack[JobOptions],
) -> Job | list[Job]:
    """Queues a command, or a batch of them, which a worker gives to /bin/sh; without either what
    the `profile` runs. `array`: one command as a job a number, `0-99%10`, as `stado submit --array`
    takes it. Repeating it is safe: the same run id with the same request answers the jobs that it
    made before.

    Raises `Refused`, which names the value and the remedy, and what the store raises."""
    command, options = _with_profile(command, options, batch=commands is not None)
    if (command is None) == (commands is None):
        raise TypeError("submit() takes a command, or commands=[…] for a batch of jobs")
    if array is not None and commands is not None:
        raise TypeError("array= is for one command, and commands= says which jobs there are itself")
    batch = commands is not None or array is not None
    one_or_more = [command] if command is not None else commands
    request, unpinned = _request(one_or_more, options, batch, array)
    settings = _settings(store, endpoint, region, context)
    repo = _repository(settings)
    submitter = Submitter(job_named=_job_named, tell=_tell)
    pinned = pin(repo, request, unpinned, submitter, run_id=run_id)
    submission = submit_request(
        repo, run_id=run_id, request=pinned, submitter=account_name(os.environ)
    )
    jobs = [Job(job_id, run_id, settings) for job_id in submission.job_ids]
    return jobs if batch else jobs[0]


def job(
    name: str,
    *,
    store: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    context: str | None = None,
) -> Job:
    """The job of an id, or of a run id. Raises `Refused` when there is none, or a whole batch."""
    jobs = batch(name, store=store, endpoint=endpoint, region=region, context=context)
    if len(jobs) > 1:
        raise Refused(
            "job_not_single",
            f"{name!r} names a batch of {len(jobs)} jobs: stado.batch({name!r}) gives them",
        )
    return jobs[0]


def batch(
    name: str,
    *,
    store: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    context: str | None = None,
) -> list[Job]:
    """All jobs of a run id, in the order of their commands. Raises `Refused` when there are
    none."""
    settings = _settings(store, endpoint, region, context)
    run_id, job_ids = _named(_repository(settings), name)
    return [Job(job_id, run_id, settings) for job_id in job_ids]


# --- what is asked for ----------------------------------------------------------------------


def _with_profile(
    command: str | None, options: JobOptions, *, batch: bool
) -> tuple[str | None, JobOptions]:
    """With what the profile states that is named, if one is. Raises `Refused`."""
    name = options.get("profile")
    explicit = {key: value for key, value in options.items() if key != "profile"}
    if name is None:
        return command, cast(JobOptions, explicit)
    profile = profile_folder(os.environ).read(name)
    if command is None and not batch:
        command = profile.command
    return command, cast(JobOptions, merged(profile.options, explicit))


def _request(
    commands: Sequence[str | None] | None,
    options: Mapping[str, Any],
    batch: bool,
    array: str | None,
) -> tuple[Request, Unpinned]:
    """Raises `TypeError` for an option that there is not, `Refused` for a value that cannot be."""
    known = JobOptions.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"submit() has no option {name!r}{did_you_mean(name, known)}")
    stated = stated_fields(options)
    unpinned_names = {one.name for one in fields(Unpinned)}
    unpinned = {name: stated.pop(name) for name in unpinned_names & stated.keys()}
    texts = [_command(command) for command in commands or ()]
    shared = checked_spec(**with_cards(stated))
    if array is None:
        return make_request(texts, shared, batch=batch), Unpinned(**unpinned)
    return make_array(texts[0], _array(array), shared), Unpinned(**unpinned)


def _array(array: object) -> Array:
    if not isinstance(array, str):
        raise TypeError(f"array is text, such as '0-99' or '0-99%10', not {array!r}")
    return parse_array(array)


def _command(command: object) -> str:
    if not isinstance(command, str):
        raise TypeError(f"a command is one string, as a shell takes it, not {command!r}")
    return command


def _note(reason: str | None) -> str | None:
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"a reason is text, not {reason!r}")
    if reason is not None and len(reason) > LINE_MAX:
        raise Refused(
            "reason_too_long",
            f"the reason has {len(reason):,} characters, and {LINE_MAX:,} are kept at most",
        )
    return reason or None


def _tell(text: str) -> None:
    warnings.warn(text, stacklevel=4)


# --- stores and names -----------------------------------------------------------------------

_opened: dict[tuple[int, Settings], Repository] = {}
"""By process: a connection must not be shared with one that was forked."""


def _settings(
    store: str | os.PathLike[str] | None,
    endpoint: str | None,
    region: str | None,
    context: str | None,
) -> Settings:
    options = Settings(None if store is None else os.fspath(store), endpoint, region, context)
    return composition.read_settings(options, os.environ, Path(os.path.expanduser("~")))


def _repository(settings: Settings) -> Repository:
    """Opened once, and kept: a handle shall cost nothing."""
    key = (os.getpid(), settings)
    if key not in _opened:
        composition.log_nowhere()
        _keep_open(settings, composition.open_repository(settings, composition.live_machine()))
    return _opened[key]


def _keep_open(settings: Settings, repo: Repository) -> None:
    """For all handles of this process to the store of these settings."""
    _opened[(os.getpid(), settings)] = repo


def _named(repo: Repository, name: str) -> tuple[str, list[str]]:
    """Run id and job ids."""
    found = find_job(repo, name) if ids.is_job_id(name) else None
    if found is not None:
        return found.record.run_id, [found.record.id]
    run = repo.find_run(name) if ids.is_run_id(name) else None
    if run is not None:
        return run.value.run_id, job_ids_of(run.value)
    raise Refused(
        "job_unknown", f"there is no job {name!r}, nor a run of that name, in {repo.store.address}"
    )


def _job_named(repo: Repository, name: str) -> str:
    job_ids = _named(repo, name)[1]
    if len(job_ids) > 1:
        raise Refused("job_not_single", f"{name!r} names a batch of {len(job_ids)} jobs: name one")
    return job_ids[0]


def _goes_on(record: Record) -> str:
    if record.state is State.PAUSED:
        return f"`stado job resume {record.id}` lets it go on"
    return "it goes on"


class _Pauses:
    """Of a job that somebody waits for: each is told once."""

    def __init__(self) -> None:
        self._epoch: int | None = None

    def told(self, record: Record) -> bool:
        """Whether this is the pause that was told last."""
        return record.state is State.PAUSED and record.epoch == self._epoch

    def tell(self, record: Record) -> None:
        """As if where somebody called the function that called the one that calls this."""
        if record.state is State.PAUSED and not self.told(record):
            self._epoch = record.epoch
            warnings.warn(f"job {record.id} is paused: {_goes_on(record)}", stacklevel=4)


# --- looking --------------------------------------------------------------------------------


def _status(repo: Repository, record: Record) -> Status:
    running = record.state is State.RUNNING
    heartbeat = life_of(repo, record).heartbeat if running else None
    progress = heartbeat.progress if heartbeat is not None else None
    ending = None if running else record.ending
    return Status(
        state=record.state.value,
        epoch=record.epoch,
        at_rest=record.state.at_rest,
        phase=heartbeat.phase.value if heartbeat is not None else None,
        progress=progress.fraction if progress is not None else None,
        progress_text=progress.text if progress is not None else None,
        reason=ending.reason.value if ending is not None and ending.reason is not None else None,
        detail=ending.detail if ending is not None else None,
        exit_code=ending.exit_code if ending is not None else None,
    )


_ERRORS: Mapping[State, type[JobError]] = {
    State.FAILED: JobFailed,
    State.CANCELLED: JobCancelled,
    State.TIMED_OUT: JobTimedOut,
    State.PAUSED: NotFinished,
}


def _raise_unless_completed(record: Record) -> None:
    kind = _ERRORS.get(record.state)
    if kind is None:
        return
    ending = record.ending
    raise kind(
        record.id,
        f"job {record.id} {record.state.value if ending is None else ending.told}",
        reason=ending.reason.value if ending is not None and ending.reason is not None else None,
        detail=ending.detail if ending is not None else None,
        exit_code=ending.exit_code if ending is not None else None,
    )


def _find_result(repo: Repository, record: Record) -> Any:
    """None where the job left none."""
    try:
        return read_result(repo, record).value
    except Conflict as error:
        raise _lost(record, "result_damaged", str(error)) from None
    except Refused as error:
        if error.code == RESULT_MISSING:
            return None
        if error.code in (RESULT_LEFT_OUT, RESULT_UNDELIVERED):
            raise _lost(record, error.code, error.text) from None
        raise


def _lost(record: Record, reason: str, text: str) -> ResultLost:
    return ResultLost(record.id, text, reason=reason, detail=text)


# --- logs -----------------------------------------------------------------------------------


def _patiently(patience: Patience, whole: JobLog, record: Record) -> Iterator[LogPiece]:
    """What has come, piece by piece: a log can be large. One that raised is asked anew, and goes
    on where it was."""
    pieces: Iterator[LogPiece] | None = None

    def following() -> LogPiece | None:
        nonlocal pieces
        if pieces is None:
            pieces = _new_pieces(whole, record)
        try:
            return next(pieces, None)
        except BaseException:
            pieces = None
            raise

    while (piece := patience.call(following)) is not None:
        yield piece


def _new_pieces(whole: JobLog, record: Record) -> Iterator[LogPiece]:
    """An epoch that waits in the queue has printed nothing: it is not looked for."""
    if record.state is State.QUEUED:
        return whole.read_before(record.epoch)
    return whole.read_up_to(record.epoch, complete=record.state.at_rest)


def _lines(pieces: Iterator[LogPiece]) -> Iterator[str]:
    """Text, with a mark for what is none. A line ends with a line feed; half a line ends before
    what is said by us."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    begun: list[str] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            yield from _completed(begun, decoder.decode(piece))
            continue
        yield from _rest(begun, decoder)
        yield f"[stado: {piece.text}]"
    yield from _rest(begun, decoder)


def _completed(begun: list[str], text: str) -> Iterator[str]:
    first, *others = text.split("\n")
    begun.append(first)
    for following in others:
        line = "".join(begun)
        begun[:] = [following]
        yield line


def _rest(begun: list[str], decoder: codecs.IncrementalDecoder) -> Iterator[str]:
    line = "".join(begun) + decoder.decode(b"", final=True)
    begun.clear()
    if line:
        yield line
