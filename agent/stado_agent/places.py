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
    machine_type: str | None,
) -> Place:
    """`chosen`: the cards that the job is given."""
    return Place(
        cards=tuple(card.uuid for card in chosen),
        share=_share(needs, chosen),
        hardware=hardware_of([card.kind for card in chosen], machine_type),
        facts=facts,
        price_milli=price_milli,
    )


def _share(needs: Needs, chosen: Sequence[Card]) -> float:
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
    }


def place_of(order: Mapping[str, Any]) -> Place:
    return Place(
        cards=tuple(order["cards"]),
        share=order["share"],
        hardware=order["hardware"],
        facts=None if (facts := order["facts"]) is None else frozenset(facts),
        price_milli=order["price_milli"],
    )
