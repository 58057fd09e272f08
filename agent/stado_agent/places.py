"""What a supervisor is told of the place that a job gets: a part of the agent's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stado.core.admission import Card
from stado.core.order import Needs
from stado.core.runtimes import hardware_of
from stado.jobs.claim import Place


def place_for(
    needs: Needs,
    chosen: Sequence[Card],
    *,
    facts: frozenset[str],
    price_milli: int,
    price_per_hour: float | None,
    part: float,
    machine_type: str | None,
) -> Place:
    """`chosen`: the cards that the job is given; `part`: of the host, as its price is shared."""
    return Place(
        cards=tuple(card.uuid for card in chosen),
        share=share_of(needs, chosen),
        hardware=hardware_of([card.kind for card in chosen], machine_type),
        facts=facts,
        price_milli=price_milli,
        price_micro=None if price_per_hour is None else round(price_per_hour * 1_000_000),
        part_micro=round(min(1.0, max(0.0, part)) * 1_000_000),
    )


def part_of_host(needs: Needs, chosen: Sequence[Card], *, cards: int, cpu_milli: int) -> float:
    """How much of the price of its host a job bears: of a host that it has for itself all; of one
    with cards the part of the cards that it has, so that a job without one bears nothing; of one
    without cards the part of its cores. The parts of all jobs of a host are one host at most."""
    if needs.exclusive:
        return 1.0
    if cards:
        return share_of(needs, chosen) * len(chosen) / cards
    return needs.cpu_milli / cpu_milli if cpu_milli else 1.0


def share_of(needs: Needs, chosen: Sequence[Card]) -> float:
    if needs.gpus or not chosen:
        return 1.0
    return min(1.0, round(needs.vram_mib / max(1, chosen[0].total_mib), 3))


def order_of(place: Place) -> dict[str, Any]:
    return {
        "cards": list(place.cards),
        "share": place.share,
        "hardware": place.hardware,
        "facts": None if place.facts is None else sorted(place.facts),
        "price_milli": place.price_milli,
        "price_micro": place.price_micro,
        "part_micro": place.part_micro,
    }


def place_of(order: Mapping[str, Any]) -> Place:
    return Place(
        cards=tuple(order["cards"]),
        share=order["share"],
        hardware=order["hardware"],
        facts=None if (facts := order["facts"]) is None else frozenset(facts),
        price_milli=order["price_milli"],
        price_micro=order["price_micro"],
        part_micro=order["part_micro"],
    )
