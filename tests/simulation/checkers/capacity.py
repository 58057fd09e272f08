"""What hosts have is given away once: told by the commands that live there and the cards that they
see, whatever agents count."""

from __future__ import annotations

from collections.abc import Sequence

from stado.core import keys
from stado.core.records import ClaimCell
from stado.core.spec import Spec
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.commands import SimCommand
from tests.simulation.placing import (
    Held,
    cpu_of,
    is_called,
    memory_of,
    part_of,
    suits,
    taken_of,
    whole_cards_of,
)
from tests.simulation.process import SimHost

_EPSILON = 1e-6
_ROUNDING_MIB = 2
_OLD_LOOK_SECONDS = 30.0


class CapacityChecker(Checker):
    """Nothing is in use twice on any host. Use grows at starts alone: it is looked at there."""

    rule = "no host gives more than it has, nor to who asks for another one"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._claimed_at: dict[tuple[str, int], float] = {}

    def on_change(self, change: Change) -> None:
        if change.written_cell == "claim":
            record = change.decode_after(ClaimCell).record
            self._claimed_at[record.id, record.epoch] = change.at

    def on_start(self, command: SimCommand) -> None:
        claim = self._find(ClaimCell, keys.claim_cell(command.job_id, command.epoch))
        if claim is None:
            return
        self._check_own(command, claim.record.spec)
        self._check_host(command.host, self._held_on(command.host))

    def _check_own(self, command: SimCommand, spec: Spec) -> None:
        host, plan = command.host, command.host.plan
        if not suits(plan, spec):
            self.fail(f"{command.job_id} runs on {host.name}, and asks for another host")
        due = whole_cards_of(spec) or int(part_of(spec) > 0)
        fitting = [
            card.uuid
            for card in plan.cards
            if card.uuid in command.cards and is_called(card, spec.gpu_type)
        ]
        if len(command.cards) != due or len(fitting) != due:
            self.fail(f"{command.job_id} asks for {due} cards and has {command.cards}")
        claimed_at = self._claimed_at.get((command.job_id, command.epoch), command.started_at)
        for uuid in command.cards:
            since = host.ailing.get(uuid)
            if since is not None and since < claimed_at - self._sight_seconds:
                self.fail(f"{command.job_id} got {uuid}, which ails since {since:.1f}")

    @property
    def _sight_seconds(self) -> float:
        """So old a look at the cards may be: whoever looked may have stood still since."""
        return _OLD_LOOK_SECONDS + self.world.plan.ways.stall_max + 5 * self.world.plan.lease

    def _check_host(self, host: SimHost, held: Sequence[Held]) -> None:
        plan, names = host.plan, [one.job_id for one in held]
        cpu = sum(cpu_of(one.spec) for one in held)
        if cpu > plan.cpu + _EPSILON:
            self.fail(f"{names} have {cpu:g} cores of {plan.cpu:g} on {host.name}")
        memory = sum(memory_of(one.spec) for one in held)
        if memory > plan.memory_gb + _EPSILON:
            self.fail(f"{names} have {memory:g} GiB of {plan.memory_gb:g} on {host.name}")
        disk = sum(one.spec.disk_gb or 0.0 for one in held)
        if disk > plan.disk_gb + _EPSILON:
            self.fail(f"{names} have {disk:g} GiB of {plan.disk_gb:g} of disk on {host.name}")
        if len(held) > 1 and any(one.spec.exclusive for one in held):
            self.fail(f"{names} run on {host.name}, and one of them has it for itself")
        for card in plan.cards:
            on_it = [one for one in held if card.uuid in one.cards]
            if len(on_it) > 1 and any(whole_cards_of(one.spec) for one in on_it):
                self.fail(
                    f"{[one.job_id for one in on_it]} have {card.uuid}, one of them all of it"
                )
            parts = sum(taken_of(card, on_it)) if not _has_whole(on_it) else 0.0
            if parts > card.left_mib + _ROUNDING_MIB:
                self.fail(f"{parts:.0f} MiB of {card.uuid} are given, and {card.left_mib} are left")


def _has_whole(held: Sequence[Held]) -> bool:
    return any(whole_cards_of(one.spec) for one in held)
