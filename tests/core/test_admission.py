from __future__ import annotations

import pytest

from stado.core.admission import Offer, admit
from stado.core.order import Needs, needs_of
from tests.core.records import queued

ONE = Needs(cpu_milli=1000, memory_mib=1024)


def test_an_unsized_job_takes_one_core_and_one_gib() -> None:
    """R184"""
    needs = needs_of(queued().spec)
    assert admit(needs, Offer(1000, 1024), now_ms=0) is None
    assert Offer(4000, 4096).less(needs) == Offer(3000, 3072)
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
