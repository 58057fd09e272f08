"""Which hosts there are and what jobs ask of them, drawn from a seed: most jobs fit some host, and
together they ask for more than there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stado_agent.making_room import RoomWaits
from tests.simulation.hardware import CardPlan, HostPlan
from tests.simulation.kernel import Kernel

_A100 = ("a100-sxm4-40gb", 40 * 1024)
_RTX = ("geforce-rtx-4090", 24 * 1024)

_ASKED = {"a100-sxm4-40gb": ("a100", "A100 40GB"), "geforce-rtx-4090": ("rtx-4090", "4090")}
"""How people call the kinds."""

_FREE_SHARE = 0.95
"""Of a card's memory: with less left it counts as no whole one."""

_DISK_SHARES = (0.1, 0.4, 0.8)


def draw_hosts(kernel: Kernel, *, differ: bool) -> tuple[HostPlan, ...]:
    """`differ`: some have cards, labels, more memory than others."""
    dice = kernel.random
    hosts = [_draw_host(kernel) for _ in range(dice.choice((1, 2, 2, 3, 4)))]
    if differ:
        hosts = [_furnished(kernel, host, number) for number, host in enumerate(hosts, 1)]
    return tuple(hosts)


def _draw_host(kernel: Kernel) -> HostPlan:
    dice = kernel.random
    return HostPlan(
        cpu=dice.choice((1.0, 2.0, 4.0)),
        rate=dice.choice((1.0, 1.0, 0.995, 1.005)),
        skew_seconds=dice.choice((0.0, 0.0, 7200.0, -7200.0, 3.0)),
        max_run_seconds=dice.choice((None, None, None, None, 25)),
    )


def _furnished(kernel: Kernel, host: HostPlan, number: int) -> HostPlan:
    dice = kernel.random
    models = dice.choice(((), (_RTX,), (_A100,) * 2, (_A100,) * 4, (_RTX, _A100, _A100)))
    cards = tuple(
        CardPlan(
            f"GPU-{number}-{place}",
            kind,
            memory_mib,
            others_mib=dice.choice((0, 0, 0, 0, 300, memory_mib // 2)),
        )
        for place, (kind, memory_mib) in enumerate(models)
    )
    return replace(
        host,
        cpu=dice.choice((2.0, 4.0, 8.0)),
        memory_gb=dice.choice((4.0, 8.0, 32.0)),
        disk_gb=dice.choice((50.0, 100.0)),
        cards=cards,
        labels=dice.choice(((), ("zone=a",), ("zone=b", "disk=fast"))),
        machine_type=dice.choice((None, None, "large")),
    )


def draw_room_waits(kernel: Kernel) -> RoomWaits:
    """Mostly so short that it is waited for them more than once in a run."""
    dice = kernel.random
    return RoomWaits(
        yield_after_seconds=dice.choice((1.0, 5.0, 30.0)),
        keep_after_seconds=dice.choice((5.0, 20.0, 60.0, 600.0)),
        ask_again_seconds=dice.choice((30.0, 600.0)),
    )


def draw_needs(kernel: Kernel, hosts: tuple[HostPlan, ...], *, share: float) -> dict[str, Any]:
    """Fields of a spec: of this share of submissions what one of the hosts has, or a part of it."""
    dice = kernel.random
    if dice.random() >= share:
        return {}
    host = dice.choice(hosts)
    needs: dict[str, Any] = {
        "cpu": dice.choice((0.5, 1.0, host.cpu / 2, host.cpu)),
        "memory_gb": dice.choice((0.5, 1.0, host.memory_gb / 2, host.memory_gb)),
    }
    if dice.random() < 0.2:
        needs["disk_gb"] = host.disk_gb * dice.choice(_DISK_SHARES)
    if dice.random() < 0.15:
        needs["exclusive"] = True
    if host.labels and dice.random() < 0.3:
        needs["labels"] = [dice.choice(host.labels)]
    if host.machine_type is not None and dice.random() < 0.3:
        needs["machine_type"] = host.machine_type
    if host.cards and dice.random() < 0.8:
        needs |= _draw_cards(kernel, host)
    return needs


def _draw_cards(kernel: Kernel, host: HostPlan) -> dict[str, Any]:
    """Whole ones, with what they must have free or without, or a part of one."""
    dice = kernel.random
    card = dice.choice(host.cards)
    alike = [one for one in host.cards if one.kind == card.kind]
    whole = [one for one in alike if one.left_mib >= _FREE_SHARE * one.memory_mib]
    needs: dict[str, Any] = {}
    if dice.random() < 0.5:
        needs["gpu_type"] = dice.choice(_ASKED[card.kind])
    if dice.random() < 0.4 or not whole:
        needs["vram_gb"] = card.left_mib / 1024 * dice.choice((0.25, 0.5, 0.75, 1.0))
        if dice.random() < 0.7:
            return needs
        return needs | {"gpus": 1}
    return needs | {"gpus": dice.randint(1, len(whole))}
