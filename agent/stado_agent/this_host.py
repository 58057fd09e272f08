"""What this host is and has to give, as its agent decides by it and broadcasts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from stado.core.admission import Offer, Reservation, choose_cards
from stado.core.envelope import PROVIDER_DEFAULT, fact_codes, host_facts
from stado.core.order import Needs
from stado.jobs.claim import Place
from stado_agent.budget import Budget
from stado_agent.places import part_of_host, place_for


@dataclass(frozen=True, slots=True)
class WhatItIs:
    """What the owner says of the host."""

    machine_type: str | None = None
    provider: str = PROVIDER_DEFAULT
    spot: bool = False
    labels: tuple[str, ...] = ()
    price_per_hour: float | None = None
    """Dollars; None: nobody counts them."""


class ThisHost:
    """The budget of a host, with what the host is beside what it has.

    `labels`: those that count now; `runs_images`: whether jobs in images may start here now;
    `full_groups`: of which no further job may run anywhere for the moment; `price_per_hour`: what
    it costs now, in dollars, or None."""

    def __init__(
        self,
        consumer: str,
        what: WhatItIs,
        budget: Budget,
        *,
        labels: Callable[[], Collection[str]],
        runs_images: Callable[[], bool],
        full_groups: Callable[[], frozenset[str]],
        price_per_hour: Callable[[], float | None],
    ) -> None:
        self._consumer = consumer
        self._what = what
        self._budget = budget
        self._labels = labels
        self._runs_images = runs_images
        self._full_groups = full_groups
        self._price_per_hour = price_per_hour

    def offer(self, reserved: Collection[Reservation]) -> Offer:
        """What is left beside these reservations, which are all that there are."""
        return self._as_it_is(self._budget.offer(reserved))

    def beside(self, kept: Iterable[Reservation], *, of: Collection[Reservation]) -> Offer:
        """What would be left beside these of the reservations `of`, had the others gone."""
        return self._as_it_is(self._budget.beside(kept, of=of))

    def place_for(self, needs: Needs, offer: Offer) -> Place:
        """What a job gets of what is left; of cards none where they do not suffice."""
        uuids = choose_cards(needs, offer.cards) or ()
        chosen = [card for card in offer.cards if card.uuid in uuids]
        cpu_milli = round(self._budget.cpu_total * 1000)
        return place_for(
            needs,
            chosen,
            facts=frozenset(self._facts()),
            price_milli=self._price_milli(),
            price_per_hour=self._price_per_hour(),
            part=part_of_host(needs, chosen, cards=len(offer.cards), cpu_milli=cpu_milli),
            machine_type=self._what.machine_type,
        )

    def _as_it_is(self, offer: Offer) -> Offer:
        return replace(
            offer,
            images=self._runs_images(),
            facts=fact_codes(self._facts()),
            price_milli=self._price_milli(),
            full_groups=self._full_groups(),
        )

    def _facts(self) -> tuple[str, ...]:
        return tuple(
            host_facts(
                consumer=self._consumer,
                machine_type=self._what.machine_type,
                provider=self._what.provider,
                spot=self._what.spot,
                labels=self._labels(),
            )
        )

    def _price_milli(self) -> int:
        price = self._price_per_hour()
        return 0 if price is None else math.ceil(price * 1000)
