"""Limits: never more jobs run than may, each in a place of its own; and no place is lost."""

from __future__ import annotations

from stado.core import keys
from stado.core.ids import base_of
from stado.core.quotas import Scope, scopes_of
from stado.core.records import ClaimCell, SlotToken
from stado.storage.port import walk
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.commands import SimCommand


class QuotasChecker(Checker):
    """Invariant 12."""

    rule = "no more jobs run than may, each in a place of its own"

    def on_change(self, change: Change) -> None:
        if change.folder != "quota":
            return
        before = change.decode_before(SlotToken) if change.before else None
        if not change.after:
            self._check_freed(change, before)
            return
        token = change.decode_after(SlotToken)
        if before is not None and before.evolve(confirmed=True) != token:
            self.fail(f"{change.key} was taken from {before.job_id} by {token.job_id}")
        if token.confirmed and self._claim_with(token) is None:
            self.fail(f"{change.key} was confirmed without a claim")

    def _check_freed(self, change: Change, before: SlotToken | None) -> None:
        """Of an epoch that has ended, or not begun."""
        if before is None or not before.confirmed:
            return
        if not self._exists(keys.end_cell(before.job_id, before.epoch)):
            self.fail(f"{change.key} was freed, and epoch {before.epoch} of {before.job_id} lives")

    def _claim_with(self, token: SlotToken) -> ClaimCell | None:
        claim = self._find(ClaimCell, keys.claim_cell(token.job_id, token.epoch))
        holder = claim.record.holder if claim is not None else None
        named = holder is not None and token.own_key() in map(keys.slot_named, holder.slots)
        return claim if named and holder is not None and holder.token == token.token else None

    def on_start(self, command: SimCommand) -> None:
        claim = self._find(ClaimCell, keys.claim_cell(command.job_id, command.epoch))
        if claim is None or claim.record.holder is None:
            return
        if self._exists(keys.end_cell(command.job_id, command.epoch)):
            return
        held = [self._token(name) for name in claim.record.holder.slots]
        for scope in self._scopes(claim):
            own = [one for one in held if one is not None and self._is_in(one, scope, claim)]
            if len({one.slot for one in own}) < scope.places:
                self.fail(f"{command.job_id} started without a place of {scope.name}")
            self._count(scope)

    def _scopes(self, claim: ClaimCell) -> list[Scope]:
        spec, user, base_id = claim.record.spec, claim.record.submitter, base_of(claim.record.id)
        return scopes_of(spec, base_id=base_id, user=user, settings=self.world.settings)

    def _token(self, slot_name: str) -> SlotToken | None:
        key = keys.slot_named(slot_name)
        there = self._exists(key) and self.world.store.get(key).data
        return self._find(SlotToken, key) if there else None

    def _is_in(self, token: SlotToken, scope: Scope, claim: ClaimCell) -> bool:
        own = (token.job_id, token.epoch, token.token)
        same = own == (claim.record.id, claim.record.epoch, claim.token)
        return same and token.confirmed and token.scope == scope.name and token.slot < scope.limit

    def _count(self, scope: Scope) -> None:
        """Places of jobs whose commands live, and whose epoch nobody has ended."""
        living = {command.job_id for host in self.world.hosts for command in host.commands}
        claims = (self._living_claim(job_id) for job_id in living)
        running = [
            claim.record.id
            for claim in claims
            if claim is not None
            for one in self._scopes(claim)
            if one.name == scope.name
            for _ in range(one.places)
        ]
        if len(running) > scope.limit:
            self.fail(f"{running} run, and {scope.limit} may of {scope.name}")

    def _living_claim(self, job_id: str) -> ClaimCell | None:
        """Of the last epoch that an agent has claimed, if it has not ended."""
        epochs = [
            parsed[0]
            for entry in walk(self.world.store, keys.cells(job_id))
            if (parsed := keys.parse_cell(entry.key)) is not None and parsed[1] == "claim"
        ]
        if not epochs or self._exists(keys.end_cell(job_id, max(epochs))):
            return None
        return self._find(ClaimCell, keys.claim_cell(job_id, max(epochs)))

    def at_end(self) -> None:
        """Nothing runs any more."""
        for entry in walk(self.world.store, keys.QUOTA):
            if entry.size:
                self.fail(f"{entry.key} is still taken")
