from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stado.core.admission import Card, Offer, Refusal, Reservation, admit, choose_cards
from stado.core.documents import from_plain
from stado.core.envelope import fact_codes, host_facts, kind_code, parse_gpus
from stado.core.order import Needs, needs_of
from stado.core.spec import Spec
from stado.errors import Refused
from tests.core.records import queued

ONE = Needs(cpu_milli=1000, memory_mib=1024)


def test_an_unsized_job_takes_one_core_and_one_gib() -> None:
    """R184"""
    needs = needs_of(queued().spec)
    assert admit(needs, Offer(1000, 1024), now_ms=0) is None
    left = Offer(4000, 4096).less(Reservation(needs))
    assert (left.cpu_milli, left.memory_mib) == (3000, 3072)
    assert admit(needs, Offer(999, 1024), now_ms=0) is not None
    assert admit(needs, Offer(1000, 1023), now_ms=0) is not None


def test_a_refusal_says_what_is_needed_and_what_is_free() -> None:
    cores = admit(ONE, Offer(500, 4096), now_ms=0)
    assert cores is not None
    assert (cores.code, cores.text) == ("waiting_capacity", "needs 1 cores, 0.5 are free")
    memory = admit(ONE, Offer(4000, -512), now_ms=0)
    assert memory is not None
    assert memory.text == "needs 1 GiB of memory, 0 are free"


@pytest.mark.parametrize(("now_ms", "admitted"), [(999, True), (1000, False), (1001, False)])
def test_nothing_starts_at_or_after_its_deadline(now_ms: int, admitted: bool) -> None:
    """R136"""
    refusal = admit(Needs(1000, 1024, deadline_ms=1000), Offer(9000, 9999), now_ms=now_ms)
    assert (refusal is None) is admitted
    assert refusal is None or refusal.code == "deadline_passed"


@pytest.mark.parametrize(
    ("offer", "spent"), [(Offer(1, 1), False), (Offer(0, 9), True), (Offer(9, 0), True)]
)
def test_an_offer_is_spent_when_either_is_gone(offer: Offer, spent: bool) -> None:
    assert offer.spent is spent


def test_a_job_with_an_image_is_let_in_where_an_engine_answers() -> None:
    needs = Needs(1000, 1024, image=True)
    refusal = admit(needs, Offer(9000, 9999), now_ms=0)
    assert refusal is not None
    assert (refusal.code, "no container engine" in refusal.text) == ("no_eligible_worker", True)
    assert admit(needs, Offer(9000, 9999, images=True), now_ms=0) is None


# Hosts that will do


def host(**what: Any) -> Offer:
    """One with room for everything."""
    stated = {"consumer": "lab-7", "machine_type": None, "provider": "local", "spot": False}
    facts = host_facts(**{**stated, "labels": [], **what})
    return Offer(64_000, 1 << 20, disk_mib=1 << 20, facts=fact_codes(tuple(facts)))


def refused(spec: Spec, offer: Offer) -> Refusal | None:
    return admit(needs_of(spec), offer, now_ms=0)


@pytest.mark.parametrize(
    ("stated", "what"),
    [
        ({"pinned_host": "lab-7"}, {"consumer": "lab-8"}),
        ({"labels": ["zone=a", "rack=1"]}, {"labels": ["zone=a"]}),
        ({"machine_type": "large"}, {"machine_type": "small"}),
        ({"provider": "gcp", "pin_provider": True}, {}),
        ({"spot": "never"}, {"spot": True}),
        ({"spot": "require"}, {"spot": False}),
    ],
)
def test_a_host_that_is_another_is_none(stated: dict[str, Any], what: dict[str, Any]) -> None:
    """R178, R182, R132, R133"""
    spec = from_plain(Spec, {"command": "true", **stated})
    refusal = refused(spec, host(**what))
    assert refusal is not None
    assert refusal.code == "no_eligible_worker"
    fit = {
        "labels": ["zone=a", "rack=1", "disk=nvme"],
        "machine_type": "large",
        "provider": "gcp",
        "spot": stated.get("spot") == "require",
    }
    assert refused(spec, host(**fit)) is None


def test_a_provider_that_is_not_pinned_is_a_wish() -> None:
    """R132"""
    assert refused(Spec(command="true", provider="gcp"), host()) is None


def test_no_dearer_host_runs_a_job_than_it_may_cost() -> None:
    """R134"""
    spec = Spec(command="true", max_cost_per_hour=1.5)
    assert refused(spec, host()) is None
    assert refused(spec, replace(host(), price_milli=1_500)) is None
    refusal = refused(spec, replace(host(), price_milli=1_501))
    assert refusal == Refusal("over_cost_cap", "may cost $1.5 an hour, and it costs $1.501")


def test_a_job_that_wants_the_host_for_itself_starts_on_an_idle_one() -> None:
    """R185"""
    alone, other = Spec(command="true", exclusive=True), Spec(command="true")
    assert refused(alone, host()) is None
    busy = host().less(Reservation(needs_of(other)))
    assert (refusal := refused(alone, busy)) is not None
    assert (refusal.code, refusal.text) == (
        "exclusive_worker_busy",
        "wants the host for itself, and 1 job run there",
    )
    closed = host().less(Reservation(needs_of(alone)))
    assert closed.spent
    assert refused(other, closed) == Refusal(
        "exclusive_worker_busy", "waits for another job, which has the host for itself"
    )


def test_disk_is_let_in_until_it_is_spent() -> None:
    """R183"""
    spec = Spec(command="true", disk_gb=10)
    left = replace(host(), disk_mib=15 * 1024).less(Reservation(needs_of(spec)))
    assert refused(Spec(command="true", disk_gb=5), left) is None
    assert (refusal := refused(spec, left)) is not None
    assert refusal.text == "needs 10 GiB of disk, 5 GiB are free"


def test_of_a_full_group_nothing_starts() -> None:
    spec = Spec(command="true", group="licences")
    full = replace(host(), full_groups=frozenset([needs_of(spec).group or ""]))
    assert (refusal := refused(spec, full)) is not None
    assert refusal.code == "group_limit_reached"
    assert refused(Spec(command="true", group="others"), full) is None


# Cards


def card(uuid: str, free_gb: float = 24, kind: str = "rtx-4090", total_gb: float = 24) -> Card:
    return Card(uuid, kind, total_mib=round(total_gb * 1024), free_mib=round(free_gb * 1024))


def chosen(cards: list[Card], **stated: Any) -> tuple[str, ...] | None:
    return choose_cards(needs_of(Spec(command="true", **stated)), cards)


def test_whole_cards_are_free_ones_and_the_smallest_that_do() -> None:
    """R183"""
    large = card("large", 80, "a100-sxm4-80gb", 80)
    cards = [large, card("held", 10), card("b"), card("a")]
    assert chosen(cards, gpus=1) == ("b",)
    assert chosen(cards, gpus=3) == ("b", "a", "large")
    assert chosen(cards, gpus=4) is None
    assert chosen(cards, gpus=1, vram_gb=40) == ("large",)
    assert chosen(cards, gpus=1, vram_gb=8) == ("held",)
    assert chosen(cards, gpus=2, gpu_type="a100") is None
    assert chosen(cards) == ()


def test_parts_are_packed_so_that_whole_cards_stay_whole() -> None:
    """R183"""
    need = needs_of(Spec(command="true", vram_gb=8))
    offer = replace(host(), cards=(card("a"), card("b", 24)))
    given = []
    for _ in range(6):
        (uuid,) = choose_cards(need, offer.cards) or ("none",)
        given.append(uuid)
        offer = offer.less(Reservation(need, (uuid,)))
    assert given == ["a"] * 3 + ["b"] * 3
    assert choose_cards(need, offer.cards) is None


def test_a_card_that_a_job_has_whole_or_in_part_is_given_to_no_other_as_a_whole() -> None:
    """R183: two trainings on one card"""
    offer = replace(host(), cards=(card("a"),))
    whole, part = (
        needs_of(Spec(command="true", **stated)) for stated in ({"gpus": 1}, {"vram_gb": 1})
    )
    for first in (whole, part):
        left = offer.less(Reservation(first, ("a",)))
        assert choose_cards(whole, left.cards) is None
    assert choose_cards(part, offer.less(Reservation(whole, ("a",))).cards) is None


def test_what_somebody_else_holds_of_a_card_is_named() -> None:
    """A39"""
    held = replace(card("a", 4), others_mib=20 * 1024, others="pid 4242 holds 20 GiB of it")
    offer = replace(host(), cards=(held,))
    refusal = refused(Spec(command="true", vram_gb=16), offer)
    assert refusal == Refusal(
        "waiting_capacity",
        "needs 16 GiB of a card, and the most that is free on one is 4 GiB (pid 4242 holds 20 GiB "
        "of it)",
    )
    assert refused(Spec(command="true", gpus=1), offer) is not None
    assert refused(Spec(command="true", vram_gb=3), offer) is None


@pytest.mark.parametrize(
    ("kind", "asked", "is_one"),
    [
        ("a100-sxm4-80gb", "a100", True),
        ("a100-sxm4-80gb", "A100 80GB", True),
        ("a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", True),
        ("a100-sxm4-80gb", "a100-40gb", False),
        ("a100-sxm4-80gb", "a10", False),
        ("geforce-rtx-4090", "rtx4090", True),
        ("geforce-rtx-4090", "4090", True),
        ("geforce-rtx-4090", "rtx-3090", False),
        ("tesla-t4", "NVIDIA T4", True),
    ],
)
def test_a_card_is_found_by_any_words_of_its_name(kind: str, asked: str, is_one: bool) -> None:
    """R137"""
    assert card("a", kind=kind).is_called(kind_code(asked)) is is_one


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("2", (2, None)),
        ("a100", (1, "a100")),
        ("a100:4", (4, "a100")),
        ("rtx 4090:2", (2, "rtx 4090")),
    ],
)
def test_cards_are_asked_for_in_one_word(text: str, parsed: tuple[int, str | None]) -> None:
    assert parse_gpus(text) == parsed


@pytest.mark.parametrize("text", ["0", "65", "", ":", "a100:", ":2", "a100:0", "a100:x", "-1"])
def test_cards_that_cannot_be_asked_for_are_refused_by_name(text: str) -> None:
    with pytest.raises(Refused, match=r"gpus .* must be a number of cards"):
        parse_gpus(text)
