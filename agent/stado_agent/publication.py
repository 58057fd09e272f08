"""What a job leaves, brought to the store before its verdict: its log, its last checkpoint, its
files; and a copy of them elsewhere, where somebody asked for one.

Tried until it succeeds: a store that is away never costs a second execution. Who cancels the job
by now gives up what cannot be delivered; the outcome stays, and tells of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from stado.core import moves
from stado.core.records import Ending, JobWarning, Manifest, Record
from stado.core.reported import Mask
from stado.core.states import Reason, Verdict, WarningCode
from stado.jobs import outputs
from stado.jobs.repository import Repository
from stado_agent.breaks import GivenUp
from stado_agent.checkpoint_sync import CheckpointSync
from stado_agent.host import Host
from stado_agent.log_shipping import LogShipper
from stado_agent.patience import Patience
from stado_agent.second_copy import SecondCopy
from stado_agent.workspace import Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """Whose it is, what must not be told of it, and whether anybody still wants it."""

    record: Callable[[], Record]
    """As of now: an adoption changes the epoch."""
    fence: Callable[[], None]
    """Raises when the epoch is not ours any more."""
    cancel_asked: Callable[[], bool]
    mask: Mask


class Publication:
    """Of one job, over all epochs that it is carried through."""

    def __init__(
        self,
        repo: Repository,
        host: Host,
        workspace: Workspace,
        *,
        shipper: LogShipper,
        checkpoints: CheckpointSync,
        patience: Patience,
        interest: Interest,
    ) -> None:
        self._repo = repo
        self._host = host
        self._workspace = workspace
        self._shipper = shipper
        self._checkpoints = checkpoints
        self._patience = patience
        self._interest = interest
        self._cancel_asked_before: bool | None = None
        """Whether a cancel was asked for before anything was delivered."""

    @property
    def _record(self) -> Record:
        return self._interest.record()

    def publish(self, outcome: Ending) -> Ending:
        """The outcome, with what was delivered and what was not."""
        self._deliver("log", self._shipper.ship_rest)
        unsaved = outcome.reason is Reason.NO_CHECKPOINT_SAVED
        partial = outcome.verdict is not Verdict.COMPLETED
        if partial and not unsaved and outcome.started_at is not None:  # else it is half restored
            failure = self.save_checkpoint()
            if failure is not None:
                outcome = self._with_warning(outcome, WarningCode.CHECKPOINT_UNDELIVERED, failure)
        return self._publish_output(outcome)

    def save_checkpoint(self) -> str | None:
        """What is in the folder, now that nothing writes there any more. Why it was not saved;
        None when it was, or there was nothing new."""
        saved: list[bool] = []

        def save() -> None:
            saved.append(self._checkpoints.save_rest(self._record.id, self._record.epoch))

        failure = self._deliver("checkpoint", save)
        if failure is None and saved and not saved[-1]:
            return f"what was in its checkpoint folder is not saved: {self._checkpoints.unsaved}"
        return failure

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
            return self._with_warning(outcome, WarningCode.OUTPUT_UNDELIVERED, failure)
        if not published:
            return outcome
        return self._copied_elsewhere(self._telling_of(outcome, published[0]), published[0])

    def _copied_elsewhere(self, outcome: Ending, manifest: Manifest) -> Ending:
        uri = self._record.spec.output_uri
        if uri is None or not manifest.files or outcome.verdict.state is None:
            return outcome
        copy = SecondCopy(self._repo, self._host.open_store)
        try:
            failure = copy.make(uri, manifest, self._workspace.output, heed=self._heed)
        except GivenUp:
            failure = "the job was cancelled meanwhile"
        if failure is None:
            return outcome
        log.warning("event=output_uri_failed job=%s why=%r", self._record.id, failure)
        told = f"the output could not be copied to {uri}: {failure}"
        return self._with_warning(outcome, WarningCode.OUTPUT_URI_FAILED, told)

    def _with_warning(self, outcome: Ending, code: WarningCode, detail: str) -> Ending:
        told = moves.clip(self._interest.mask(detail))
        return outcome.evolve(warnings=[*outcome.warnings, JobWarning(code=code, detail=told)])

    def _telling_of(self, outcome: Ending, manifest: Manifest) -> Ending:
        """With what was delivered, and what was not."""
        told = outcome.evolve(
            output_files=len(manifest.files), output_bytes=sum(file.size for file in manifest.files)
        )
        lacking = outputs.left_out(manifest.skipped)
        if not lacking:
            return told
        more = f", and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
        return self._with_warning(told, WarningCode.OUTPUT_LEFT_OUT, f"{lacking[0]}{more}")

    def _deliver(self, what: str, step: Callable[[], object]) -> str | None:
        """An outcome that is known is never lost over what this host cannot read, or over what
        nobody waits for any more: a cancel that comes now gives up what the store does not take.
        Why it was not delivered; None when it was."""
        if self._cancel_asked_before is None:
            self._cancel_asked_before = self._interest.cancel_asked()
        try:
            self._patience.persist(step, between=self._heed)
        except (OSError, GivenUp) as error:
            log.error(
                "event=undelivered what=%s job=%s error=%r", what, self._record.id, str(error)
            )
            if isinstance(error, GivenUp):
                return f"the job was cancelled before the store took its {what}"
            return f"its {what} could not be delivered: {error}"
        return None

    def _heed(self) -> None:
        self._interest.fence()
        if self._interest.cancel_asked() and not self._cancel_asked_before:
            raise GivenUp
