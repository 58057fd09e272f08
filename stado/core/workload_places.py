"""Which host a workload is placed on, of those that have room for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stado.core.admission import Offer, Reservation, admit, choose_cards
from stado.core.envelope import code_of
from stado.core.offers import offer_left, price_milli
from stado.core.order import Needs
from stado.core.records import Capacity


def choose_place(
    needs: Needs, free: Sequence[Capacity], pinned: Sequence[Needs]
) -> Capacity | None:
    """`free`: hosts that could start it now, by their reports. `pinned`: what queued jobs ask for
    that only one host may run; a host that needs its room for these is none.

    The cheapest; of these one with as few cards as will do, so that those with more stay for jobs
    that need them; then the one with the most memory left; then the first by name."""
    timeless = replace(needs, deadline_ms=None)
    able = [one for one in free if _has_room(timeless, one, pinned)]
    return min(able, key=_rank, default=None)


def _rank(capacity: Capacity) -> tuple[int, int, float, str]:
    return (
        price_milli(capacity),
        len(capacity.accelerators),
        -capacity.memory_free_gb,
        capacity.consumer,
    )


def _has_room(needs: Needs, capacity: Capacity, pinned: Sequence[Needs]) -> bool:
    offer = offer_left(capacity)
    own = code_of(f"host:{capacity.consumer}")
    for others in pinned:
        if own in others.facts:
            offer = _without(offer, others)
    return admit(needs, offer, now_ms=0) is None


def _without(offer: Offer, needs: Needs) -> Offer:
    cards = choose_cards(needs, offer.cards) if needs.uses_cards else ()
    return offer.less(Reservation(needs, cards or ()))
