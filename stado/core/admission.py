"""May this job start here, now, and on which cards? One pure predicate, used by whoever has to
know: the agent on what is left of its host, the others on what it last said of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from stado.core.envelope import kind_codes
from stado.core.order import Needs

_WHOLE_ALLOWANCE = 0.05
_WHOLE_ALLOWANCE_MIB = 1024
"""Of a card's memory, the larger of the two: what a screen or a driver may hold of one that counts
as free."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not: `code` for machines, `text` for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Card:
    """An accelerator, and what of it is left."""

    uuid: str
    kind: str
    """Its model as a word: `a100-sxm4-80gb`."""
    total_mib: int
    free_mib: int
    taken: bool = False
    """Whether a job of ours has all of it, or a part."""
    closed: bool = False
    """Whether a job has all of it."""
    others_mib: int = 0
    """What somebody else holds of it."""
    others: str = ""
    """The same for people."""

    @property
    def whole(self) -> bool:
        """Whether it can be given away as a whole."""
        allowance = max(self.total_mib * _WHOLE_ALLOWANCE, _WHOLE_ALLOWANCE_MIB)
        return not self.taken and self.free_mib >= self.total_mib - allowance

    def is_called(self, code: str | None) -> bool:
        return code is None or code in kind_codes(self.kind)

    def less(self, needs: Needs) -> Card:
        if needs.gpus:
            return replace(self, taken=True, closed=True, free_mib=0)
        return replace(self, taken=True, free_mib=self.free_mib - needs.vram_mib)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a job has of its host."""

    needs: Needs
    cards: tuple[str, ...] = ()
    """UUIDs."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a host has left to give."""

    cpu_milli: int
    memory_mib: int
    images: bool = False
    """Whether it can run commands in container images."""
    disk_mib: int | None = None
    """None: not known, and not asked for."""
    cards: tuple[Card, ...] = ()
    facts: frozenset[str] = field(default=frozenset())
    """Codes of what the host is."""
    price_milli: int = 0
    """Thousandths of a dollar an hour; 0 where nobody stated a price."""
    jobs: int = 0
    """How many have something of it."""
    closed: bool = False
    """Whether one has it for itself."""
    full_groups: frozenset[str] = field(default=frozenset())
    """Codes of groups of which no further job may run now, anywhere."""

    def less(self, given: Reservation) -> Offer:
        """What is left after a job was let in."""
        needs = given.needs
        return replace(
            self,
            cpu_milli=self.cpu_milli - needs.cpu_milli,
            memory_mib=self.memory_mib - needs.memory_mib,
            disk_mib=None if self.disk_mib is None else self.disk_mib - needs.disk_mib,
            cards=tuple(
                card.less(needs) if card.uuid in given.cards else card for card in self.cards
            ),
            jobs=self.jobs + 1,
            closed=self.closed or needs.exclusive,
        )

    @property
    def spent(self) -> bool:
        """Whether no job at all can be let in."""
        return self.closed or self.cpu_milli <= 0 or self.memory_mib <= 0


def admit(needs: Needs, offer: Offer, *, now_ms: int) -> Refusal | None:
    """None when the job may start; `now_ms` is milliseconds on the store's clock."""
    return too_late(needs, now_ms) or _wrong_host(needs, offer) or _no_room(needs, offer)


class Door:
    """One offer at one moment, asked for many jobs, of which many ask for the same."""

    def __init__(self, offer: Offer, *, now_ms: int) -> None:
        self._offer = offer
        self._now_ms = now_ms
        self._answers: dict[Needs, bool] = {}

    def lets_in(self, needs: Needs) -> bool:
        answer = self._answers.get(needs)
        if answer is None:
            answer = admit(needs, self._offer, now_ms=self._now_ms) is None
            self._answers[needs] = answer
        return answer


def too_late(needs: Needs, now_ms: int) -> Refusal | None:
    if needs.deadline_ms is None or now_ms < needs.deadline_ms:
        return None
    return Refusal(
        "deadline_passed",
        "its deadline has passed: a coordinator, or a worker that looks, ends it",
    )


def _wrong_host(needs: Needs, offer: Offer) -> Refusal | None:
    """Why the job cannot run there, however empty the host may be."""
    if needs.image and not offer.images:
        return Refusal(
            "no_eligible_worker", "runs in an image, and no container engine answers there"
        )
    if not needs.facts <= offer.facts:
        return Refusal("no_eligible_worker", "asks for another host")
    if needs.price_milli is not None and offer.price_milli > needs.price_milli:
        return Refusal(
            "over_cost_cap",
            f"may cost ${needs.price_milli / 1000:g} an hour, and it costs "
            f"${offer.price_milli / 1000:g}",
        )
    return None


def _no_room(needs: Needs, offer: Offer) -> Refusal | None:
    if needs.group is not None and needs.group in offer.full_groups:
        return Refusal("group_limit_reached", "as many jobs of its group run as may at a time")
    if offer.closed or (needs.exclusive and offer.jobs):
        return Refusal("exclusive_worker_busy", _exclusive_text(offer))
    if needs.cpu_milli > offer.cpu_milli:
        return Refusal(
            "waiting_capacity",
            f"needs {needs.cpu_milli / 1000:g} cores, {max(0, offer.cpu_milli) / 1000:g} are free",
        )
    if needs.memory_mib > offer.memory_mib:
        return Refusal(
            "waiting_capacity",
            f"needs {_gib(needs.memory_mib)} of memory, {_gib(offer.memory_mib)[:-4]} are free",
        )
    if needs.disk_mib and offer.disk_mib is not None and needs.disk_mib > offer.disk_mib:
        return Refusal(
            "waiting_capacity",
            f"needs {_gib(needs.disk_mib)} of disk, {_gib(offer.disk_mib)} are free",
        )
    if needs.uses_cards and choose_cards(needs, offer.cards) is None:
        return Refusal("waiting_capacity", cards_text(needs, offer.cards))
    return None


def _exclusive_text(offer: Offer) -> str:
    if offer.closed:
        return "waits for another job, which has the host for itself"
    return f"wants the host for itself, and {_plural(offer.jobs, 'job')} run there"


def choose_cards(needs: Needs, cards: Sequence[Card]) -> tuple[str, ...] | None:
    """UUIDs of the cards that the job would get: the smallest that will do, and of those that can
    be shared the fullest, so that whole ones stay whole. None when there are not enough."""
    if not needs.uses_cards:
        return ()
    fit = [card for card in cards if _fits(needs, card)]
    fit.sort(key=lambda card: (not card.taken, card.free_mib))
    count = needs.gpus or 1
    return tuple(card.uuid for card in fit[:count]) if len(fit) >= count else None


def cards_to_keep(needs: Needs, cards: Sequence[Card]) -> tuple[str, ...]:
    """UUIDs of those that a job would get as far as they are there: kept from others for it."""
    if not needs.uses_cards:
        return ()
    called = [card for card in cards if card.is_called(needs.kind)]
    called.sort(key=lambda card: (not _fits(needs, card), -card.free_mib))
    return tuple(card.uuid for card in called[: needs.gpus or 1])


def _fits(needs: Needs, card: Card) -> bool:
    if not card.is_called(needs.kind):
        return False
    if not needs.gpus:
        return not card.closed and card.free_mib >= needs.vram_mib
    if needs.vram_mib:  # it says what it needs of a card, which somebody else may hold a part of
        return not card.taken and card.free_mib >= needs.vram_mib
    return card.whole


def cards_text(needs: Needs, cards: Iterable[Card]) -> str:
    """What a job asks of the cards, and what keeps it from them."""
    asked, called = cards_asked(needs), [card for card in cards if card.is_called(needs.kind)]
    if not called:
        return f"needs {asked}, and there is none of that kind"
    held = [card.others for card in called if card.others]
    by_others = f" ({'; '.join(held[:3])})" if held else ""
    if needs.gpus:
        free = sum(_fits(needs, card) for card in called)
        return f"needs {asked}, {free} of {len(called)} are free{by_others}"
    most = max((card.free_mib for card in called if not card.closed), default=0)
    return f"needs {asked}, and the most that is free on one is {_gib(most)}{by_others}"


def held_text(mib: int, pids: Sequence[int]) -> str:
    """`process 4242, no job of this host, holds 20 GiB`; "" when they hold nothing."""
    if not mib:
        return ""
    who = f"process {', '.join(map(str, pids))}" if pids else "somebody else"
    return f"{who}, no job of this host, holds {_gib(mib)}"


def cards_asked(needs: Needs) -> str:
    """`2 whole cards of 40 GiB`; `16 GiB of a card`."""
    if not needs.gpus:
        return f"{_gib(needs.vram_mib)} of a card"
    size = f" of {_gib(needs.vram_mib)}" if needs.vram_mib else ""
    return f"{_plural(needs.gpus, 'whole card')}{size}"


def _gib(mib: int) -> str:
    return f"{round(max(0, mib) / 1024, 1):g} GiB"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
