"""Whether a job fits a host: told by what hosts have and jobs ask for, independently of the code
that is tried."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from stado.core.spec import CPU_DEFAULT, MEMORY_GB_DEFAULT, Spec
from tests.simulation.hardware import CardPlan, HostPlan

_WHOLE_SHARE = 0.95
_EPSILON = 1e-6
_RESERVED_GB = 1.0
"""Of the disk, that jobs must leave free."""


@dataclass(frozen=True, slots=True)
class Held:
    """A job, and which cards it has."""

    job_id: str
    spec: Spec
    cards: tuple[str, ...] = ()


def cpu_of(spec: Spec) -> float:
    return CPU_DEFAULT if spec.cpu is None else spec.cpu


def memory_of(spec: Spec) -> float:
    """GiB."""
    return MEMORY_GB_DEFAULT if spec.memory_gb is None else spec.memory_gb


def whole_cards_of(spec: Spec) -> int:
    return spec.gpus or int(spec.gpu_type is not None and spec.vram_gb is None)


def part_of(spec: Spec) -> float:
    """MiB of a card that others may share; 0 for none."""
    return 0.0 if whole_cards_of(spec) or spec.vram_gb is None else spec.vram_gb * 1024


def suits(host: HostPlan, spec: Spec) -> bool:
    """Whether it is of the kind that the job asks for, whatever runs there."""
    has_type = spec.machine_type in (None, host.machine_type)
    return has_type and set(spec.labels) <= set(host.labels)


def fits(
    host: HostPlan, spec: Spec, beside: Collection[Held] = (), *, ailing: Collection[str] = ()
) -> bool:
    """Whether a job would find room there beside these."""
    if not suits(host, spec) or any(held.spec.exclusive for held in beside):
        return False
    if spec.exclusive and beside:
        return False
    specs = [spec, *(held.spec for held in beside)]
    enough = (
        sum(map(cpu_of, specs)) <= host.cpu + _EPSILON
        and sum(map(memory_of, specs)) <= host.memory_gb + _EPSILON
        and sum(one.disk_gb or 0.0 for one in specs) <= host.disk_gb - _RESERVED_GB + _EPSILON
    )
    return enough and _has_cards(host, spec, beside, ailing)


def _has_cards(host: HostPlan, spec: Spec, beside: Iterable[Held], ailing: Collection[str]) -> bool:
    called = [card for card in host.cards if is_called(card, spec.gpu_type)]
    well = [card for card in called if card.uuid not in ailing]
    whole = whole_cards_of(spec)
    if whole:
        taken = {uuid for held in beside for uuid in held.cards}
        return sum(card.uuid not in taken and _is_whole(card, spec) for card in well) >= whole
    part = part_of(spec)
    held = list(beside)
    return not part or any(_left(card, held) >= part - 1 for card in well)


def _is_whole(card: CardPlan, spec: Spec) -> bool:
    if spec.vram_gb is not None:
        return card.left_mib >= spec.vram_gb * 1024 - 1
    return card.left_mib >= _WHOLE_SHARE * card.memory_mib


def _left(card: CardPlan, beside: Iterable[Held]) -> float:
    """MiB of it that nobody has."""
    return card.left_mib - sum(taken_of(card, beside))


def taken_of(card: CardPlan, held: Iterable[Held]) -> Iterator[float]:
    """MiB of it that each of the jobs on it has."""
    for one in held:
        if card.uuid in one.cards:
            yield part_of(one.spec) or float(card.memory_mib)


def is_called(card: CardPlan, asked: str | None) -> bool:
    words = re.findall("[a-z0-9]+", (asked or "").lower())
    return all(word in card.kind.split("-") for word in words)
