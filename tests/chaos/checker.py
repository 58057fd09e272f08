"""What must hold of the bucket and of what the jobs wrote down, once a run is at rest.

Each check is a function of the evidence and yields a sentence for each thing that is not as it must
be. None of them looks at how the run went.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stado.core.records import Manifest, Record
from stado.core.spec import MAX_LEASE_LOSSES_DEFAULT
from stado.core.states import Reason, State, Verdict
from tests.chaos.evidence import Evidence, JobEvidence, job_ids_of

NO_RESULT_CODE = 9
"""With which a job ends that could not write its result: its disk was full."""

_NOISE = b"a line of noise, of which there is more than anybody reads\n"
_UPTIME_STEP = 0.02
"""Uptimes are read to the hundredth of a second."""
_LIVES_AFTER_SECONDS_MAX = 3.0
"""An S3 server tells whole seconds, and an answer takes a while."""

_REASONS: dict[State, set[Reason | None]] = {
    State.COMPLETED: {None},
    State.FAILED: {Reason.JOB_FAILED, Reason.VERIFY_FAILED, Reason.LEASE_EXPIRED_MAX_ATTEMPTS},
    State.CANCELLED: {Reason.CANCELLED, Reason.CANCELLED_BY_USER},
}
"""How the jobs of a run may end. Nothing that they ask for is impossible."""

_BY_HOLDER = {None, Reason.JOB_FAILED, Reason.VERIFY_FAILED, Reason.CANCELLED}
"""Reasons that the holder alone gives, after it has seen to it that nothing lives."""


@dataclass(frozen=True)
class Violation:
    check: str
    what: str
    """A job, a run, or the run of chaos as a whole."""
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.what}: {self.text}"


def check(evidence: Evidence) -> list[Violation]:
    """All that is wrong."""
    of_jobs = [
        Violation(check.__name__, job.job_id, text)
        for job in evidence.jobs.values()
        for check in JOB_CHECKS
        for text in check(job, evidence)
    ]
    return of_jobs + [
        Violation(check.__name__, what, text)
        for check in RUN_CHECKS
        for what, text in check(evidence)
    ]


# --- the bucket -----------------------------------------------------------------------------


def one_outcome(job: JobEvidence, _: Evidence) -> Iterator[str]:
    """In one prefix, at rest, and the verdict on its last epoch."""
    states = sorted(state.value for state in job.records)
    if len(states) != 1:
        yield f"it stands under {states or 'no prefix'}"
    for state, record in job.records.items():
        if record.state is not state:
            yield f"under {state} it says {record.state}"
        if not state.terminal:
            yield f"it is {state}"
        end = job.ends.get(record.epoch)
        if end is None or end.record != record:
            yield f"the verdict on epoch {record.epoch} is not what its record says"


def epochs_follow_losses(job: JobEvidence, _: Evidence) -> Iterator[str]:
    """Each epoch but the last was lost, for a reason; there is none beyond the last."""
    last = max(job.ends, default=0)
    for epoch in range(1, last):
        end = job.ends.get(epoch)
        if end is None or end.ending.verdict is not Verdict.LOST or end.ending.reason is None:
            said = f"{end.ending.verdict} ({end.ending.reason})" if end else "no verdict"
            yield f"epoch {epoch} was followed by another and has {said}"
    if max(job.claims, default=0) > last:
        yield f"epoch {max(job.claims)} is claimed and has no verdict"
    if last and job.ends[last].ending.verdict is Verdict.LOST:
        yield f"epoch {last} is lost and nothing follows"


def known_reason(job: JobEvidence, _: Evidence) -> Iterator[str]:
    record = job.record
    if record is None or record.ending is None:
        return
    if record.ending.reason not in _REASONS.get(record.state, set()):
        yield f"it is {record.state} for {record.ending.reason}: {record.ending.detail}"
    if record.ending.reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS:
        allowed = record.spec.max_lease_losses
        allowed = MAX_LEASE_LOSSES_DEFAULT if allowed is None else allowed
        if allowed < 0 or record.lease_losses < allowed:
            yield f"it was lost {record.lease_losses} times before, and {allowed} are allowed"


def readable(evidence: Evidence) -> Iterator[tuple[str, str]]:
    for text in evidence.unreadable:
        yield "run", text


def nothing_open(evidence: Evidence) -> Iterator[tuple[str, str]]:
    for key in evidence.index:
        yield key, "this entry of the index is left"


def acknowledged(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """What clients were told to stand does, with the ids that they were told."""
    for run_id, answers in evidence.told.items():
        run = evidence.runs.get(run_id)
        if run is None:
            yield run_id, "it was acknowledged and is not there"
            continue
        stored = job_ids_of(run)
        for told in answers:
            if told != stored:
                yield run_id, f"a client was told {told}, and the store says {stored}"
        for job_id in stored:
            if not evidence.jobs[job_id].records:
                yield run_id, f"its job {job_id} is not there"
        if not run.complete:
            yield run_id, "it is not complete"


# --- starts ---------------------------------------------------------------------------------


def starts_are_claimed(job: JobEvidence, _: Evidence) -> Iterator[str]:
    """A command starts in an epoch that an agent claimed, and not by adoption."""
    for trace in job.of("started"):
        claim = job.claims.get(trace.epoch)
        if claim is None:
            yield f"epoch {trace.epoch} was started and nobody has claimed it"
        elif claim.intent is not None:
            yield f"epoch {trace.epoch} was started, and was claimed to {claim.intent} it"
        elif job.is_adopted(trace.epoch):
            yield f"epoch {trace.epoch} was adopted and started"


def one_start_an_epoch(job: JobEvidence, _: Evidence) -> Iterator[str]:
    epochs = [trace.epoch for trace in job.of("started")]
    for epoch in sorted(set(epochs)):
        if epochs.count(epoch) > 1:
            yield f"epoch {epoch} was started {epochs.count(epoch)} times"


def starts_are_counted(job: JobEvidence, _: Evidence) -> Iterator[str]:
    """A start that was announced and then not made counts; one that was made always does."""
    seen = len({trace.epoch for trace in job.of("started")})
    if job.record is not None and job.record.starts < seen:
        yield f"it was started {seen} times and its record says {job.record.starts}"


def overlaps_were_sealed(job: JobEvidence, _: Evidence) -> Iterator[str]:
    """An older command lives beside a newer one only when its holder could not be heard: who
    takes an epoch back in any other way has ended what it ran."""
    starts = sorted(job.of("started"), key=lambda trace: trace.epoch)
    for older in starts:
        held_last = job.last_epoch_of(older.epoch)
        end = job.ends.get(held_last)
        if end is not None and end.ending.reason is Reason.LEASE_EXPIRED:
            continue
        for newer in starts:
            if newer.epoch <= held_last:
                continue
            for trace in job.traces:
                if trace.epoch == older.epoch and trace.uptime > newer.uptime + _UPTIME_STEP:
                    yield (
                        f"{trace.what} of epoch {older.epoch}, pid {trace.pid}, at {trace.uptime}, "
                        f"when epoch {newer.epoch} had been started at {newer.uptime}; epoch "
                        f"{held_last} ended for {end.ending.reason if end else None}"
                    )
                    break


def nothing_lives_after(job: JobEvidence, _: Evidence) -> Iterator[str]:
    """Whatever a holder said of its job's end, it said after all of it had ended."""
    record = job.record
    if record is None or record.ending is None or record.ending.reason not in _BY_HOLDER:
        return
    stamped = [trace for trace in job.of("started") if trace.wall is not None]
    if not stamped:
        return
    boot = stamped[0].wall - stamped[0].uptime  # type: ignore[operator]
    ended = record.ending.ended_at.timestamp() - boot
    for trace in job.traces:
        own = job.first_epoch_of(record.epoch) <= trace.epoch <= record.epoch
        if own and trace.uptime > ended + _LIVES_AFTER_SECONDS_MAX:
            yield f"{trace.what}, pid {trace.pid}, {trace.uptime - ended:.2f} s after its end"
            return


# --- outcomes -------------------------------------------------------------------------------


def outcome_was_reached(job: JobEvidence, evidence: Evidence) -> Iterator[str]:
    """A job that completed ran to its end, and what failed by itself ended as it is said."""
    record = job.record
    ending = record.ending if record is not None else None
    if record is None or ending is None or ending.reason not in _BY_HOLDER - {Reason.CANCELLED}:
        return
    epochs = range(job.first_epoch_of(record.epoch), record.epoch + 1)
    ended = [trace.exit_code for trace in job.of("ended", epochs[0])]
    if ending.exit_code is not None and ending.exit_code < 0:
        if not _was_killed(job, evidence):
            yield f"its command is said to have ended by signal {-ending.exit_code}"
    elif ended != [ending.exit_code]:
        yield f"its exit code is {ending.exit_code}, and in epoch {epochs[0]} it wrote {ended}"
    yield from _verified(job, record, epochs, evidence)


def _verified(job: JobEvidence, record: Record, epochs: range, evidence: Evidence) -> Iterator[str]:
    codes = [trace.exit_code for trace in job.of("verified") if trace.epoch in epochs]
    assert record.ending is not None
    if record.state is State.COMPLETED and record.spec.verify is not None and codes != [0]:
        yield f"it completed, and its verify command wrote {codes}"
    failed = len(codes) == 1 and codes != [0]
    if record.ending.reason is Reason.VERIFY_FAILED and not failed | _was_killed(job, evidence):
        yield f"its verify command is said to have failed, and wrote {codes}"


def _was_killed(job: JobEvidence, evidence: Evidence) -> bool:
    """Whether we killed a command of it: then it ends by that, or it had just ended."""
    return job.job_id in evidence.killed_commands


def cancels_stand(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """After a cancel that was acknowledged no later epoch starts."""
    for told in evidence.cancels:
        job = evidence.jobs[told.job_id]
        later = [trace.epoch for trace in job.of("started") if trace.epoch > told.epoch]
        if later:
            yield told.job_id, f"its cancel was told in epoch {told.epoch}, and {later} started"


def cancelled_was_asked(job: JobEvidence, _: Evidence) -> Iterator[str]:
    record = job.record
    if record is None or record.state is not State.CANCELLED:
        return
    intents = [claim for claim in job.claims.values() if claim.intent is not None]
    if not intents and not job.cancels_asked:
        yield "it is cancelled, and nobody has asked for that"


# --- what jobs leave ------------------------------------------------------------------------


def files_are_whole(job: JobEvidence, _: Evidence) -> Iterator[str]:
    """Each file of each manifest has its size and digest, and the result is what it must be."""
    for epoch, manifest in job.manifests.items():
        for file in manifest.files:
            stored = job.files.get(file.key)
            if stored != (file.size, file.sha256):
                yield f"{file.path} of epoch {epoch} is {stored}, and not {file.size} bytes"
    record = job.record
    if record is None or record.state is not State.COMPLETED:
        return
    own = job.manifests.get(record.epoch)
    result = hashlib.sha256(f"{job.job_id} {_words(record)[4]}\n".encode()).hexdigest()
    found = [file.sha256 for file in own.files if file.path == "result"] if own else []
    if found != [result] and not job.cancels_asked:  # a late cancel gives up what is not delivered
        yield f"it completed, and its result is {found or 'not there'}"


def log_is_accounted(job: JobEvidence, _: Evidence) -> Iterator[str]:
    """`written = kept + dropped`; `kept` is what is there; what was printed is all that is there
    when nothing was dropped."""
    record = job.record
    if record is None or record.ending is None or record.state is State.CANCELLED:
        return
    manifest = job.manifests.get(record.epoch)
    if manifest is None or manifest.log is None or record.ending.exit_code is None:
        return
    account = manifest.log
    kept = sum(len(data) for data in job.logs.get(record.epoch, {}).values())
    if account.written != account.kept + account.dropped:
        yield f"its log's account is {account}"
    if kept != account.kept and not job.cancels_asked:
        yield f"its log has {kept} bytes, and its account {account}"
    epochs = range(job.first_epoch_of(record.epoch), record.epoch + 1)
    if record.ending.exit_code >= 0 and not _has_gap(job, manifest, epochs):
        text = b"".join(data for epoch in epochs for _, data in sorted(job.logs[epoch].items()))
        if text not in _possible_logs(record):
            yield f"its log of epochs {list(epochs)} is not what it printed: {text[-200:]!r}"


def _has_gap(job: JobEvidence, manifest: Manifest, epochs: range) -> bool:
    """Whether bytes are missing that may be: dropped ones, or of epochs that nobody accounts."""
    if manifest.log is None or manifest.log.dropped or len(epochs) > 1:
        return True
    offset = 0
    for start, data in sorted(job.logs.get(epochs[0], {}).items()):
        if start != offset:
            return True
        offset += len(data)
    return offset == 0


def _possible_logs(record: Record) -> list[bytes]:
    """One, unless the job goes on from a checkpoint."""
    words = _words(record)
    work, seconds, noise = words[4], words[5], int(words[7])
    steps = 1 if "." in seconds else 2 * int(seconds)
    printed = (_NOISE * (noise // len(_NOISE) + 1))[:noise]
    firsts = range(1, steps + 2) if work == "checkpoints" else (1,)
    return [
        printed + b"".join(b"line %d\n" % step for step in range(first, steps + 1))
        for first in firsts
    ]


def _words(record: Record) -> list[str]:
    """`exec sh SCRIPT TRACES WORK SECONDS CODE NOISE`"""
    return shlex.split(record.spec.command)


JOB_CHECKS: tuple[Callable[[JobEvidence, Evidence], Iterator[str]], ...] = (
    one_outcome,
    epochs_follow_losses,
    known_reason,
    starts_are_claimed,
    one_start_an_epoch,
    starts_are_counted,
    overlaps_were_sealed,
    nothing_lives_after,
    outcome_was_reached,
    cancelled_was_asked,
    files_are_whole,
    log_is_accounted,
)
RUN_CHECKS: tuple[Callable[[Evidence], Iterator[tuple[str, str]]], ...] = (
    readable,
    nothing_open,
    acknowledged,
    cancels_stand,
)
