"""Policies of train jobs: sealed before anybody sees the job at rest, for ever, with what was
saved; and what they name is there."""

from __future__ import annotations

import hashlib
from collections import defaultdict

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import Checkpoint, Heartbeat, PolicySeal, Record, SaveRef, policy_name
from stado.core.states import State
from stado.errors import NotFound
from stado.jobs.checkpoints import best_as_of
from tests.simulation.checkers.base import Change, Checker

_ENDED = frozenset(keys.prefix(state) for state in State if state.terminal)

_Number = tuple[int, int]
"""Epoch and sequence of a save."""


class PoliciesChecker(Checker):
    """Invariant 9."""

    rule = "a policy is sealed before its job rests, and what it names stays"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._newest: dict[str, _Number] = defaultdict(lambda: (0, 0))
        """Of each job: the newest manifest that has stood."""
        self._owed: dict[str, _Number] = defaultdict(lambda: (0, 0))
        """The newest that stood when a beat was accepted: a policy has it, or a newer one."""
        self._named: dict[str, str] = {}
        """What a policy names, and whose job it is."""

    def on_change(self, change: Change) -> None:
        if change.folder == "policies":
            self._check_seal(change)
        elif f"{change.folder}/" in _ENDED:
            self._check_record(change)
        elif change.parts[2:3] == ["checkpoints"]:
            self._note_checkpoint(change)
        elif change.parts[2:] == ["heartbeat"]:
            self._note_beat(change)

    def _note_beat(self, change: Change) -> None:
        assert change.job_id is not None  # below its status
        if not change.decode_after(Heartbeat).sealed:
            self._owed[change.job_id] = self._newest[change.job_id]

    def _note_checkpoint(self, change: Change) -> None:
        number = keys.parse_checkpoint_manifest(change.key)
        assert change.job_id is not None  # below its status
        if change.after is not None and number is not None:
            self._newest[change.job_id] = max(number, self._newest[change.job_id])
        if change.after != change.before and change.key in self._named:
            what = "deleted" if change.after is None else "changed"
            self.fail(f"{change.key} was {what}, and policy_{change.job_id} names it")

    def _check_record(self, change: Change) -> None:
        if change.after is None:
            return
        record = change.decode_after(Record)
        if record.spec.makes_policy and not self._exists(
            keys.policy(policy_name(record.id, record.policy_revision))
        ):
            self.fail(f"{record.id} rests, and its policy is not sealed")

    def _check_seal(self, change: Change) -> None:
        if change.before is not None:
            self.fail(f"{change.key} was {'changed' if change.after else 'deleted'}")
            return
        seal = change.decode_after(PolicySeal)
        latest = seal.latest
        number = keys.parse_checkpoint_manifest(latest.manifest) if latest else None
        if (number or (0, 0)) < self._owed[seal.job_id]:
            self.fail(f"{change.key} has {number}, and {self._owed[seal.job_id]} had been saved")
        for save in filter(None, (seal.latest, seal.best)):
            self._note_named(seal, save)
        newest = self._read(latest) if latest is not None else None
        best = best_as_of(newest, latest) if newest is not None and latest is not None else None
        if best != seal.best:
            self.fail(f"{change.key} has another best than its latest knew: {seal.best}")

    def _note_named(self, seal: PolicySeal, save: SaveRef) -> None:
        checkpoint = self._read(save)
        if checkpoint is None:
            self.fail(f"{seal.policy_id} names {save.manifest}, which cannot be had")
            return
        self._named[save.manifest] = seal.job_id
        for file in checkpoint.files:
            self._named |= dict.fromkeys(file.parts, seal.job_id)
            self._check_file(seal, file.path, file.parts, file.sha256)

    def _check_file(self, seal: PolicySeal, path: str, parts: list[str], sha256: str) -> None:
        digest = hashlib.sha256()
        for part in parts:
            if not self._exists(part):
                self.fail(f"{seal.policy_id}: {part} of {path} is gone")
                return
            digest.update(self.world.store.get(part).data)
        if digest.hexdigest() != sha256:
            self.fail(f"{seal.policy_id}: {path} is not what its manifest says")

    def _read(self, save: SaveRef) -> Checkpoint | None:
        try:
            data = self.world.store.get(save.manifest).data
        except NotFound:
            return None
        same = hashlib.sha256(data).hexdigest() == save.sha256
        return decode(Checkpoint, save.manifest, data) if same else None

    def at_end(self) -> None:
        for job_id in self.world.known_jobs:
            record = self._resting(job_id)
            if record is None or not record.spec.makes_policy:
                continue
            ended = record.policy_revision if record.state.terminal else record.manual_retries
            for revision in range(1, ended + 1):
                self._check_rests(job_id, revision)

    def _check_rests(self, job_id: str, revision: int) -> None:
        seal = self._find(PolicySeal, keys.policy(policy_name(job_id, revision)))
        if seal is None:
            self.fail(f"{job_id} rests without policy {revision}")
            return
        for save in filter(None, (seal.latest, seal.best)):
            self._note_named(seal, save)
