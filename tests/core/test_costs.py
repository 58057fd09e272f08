from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from math import isclose

import pytest
from msgspec.structs import replace

from stado.core import costs
from stado.core.costs import (
    Catalog,
    CostSum,
    CostTally,
    Days,
    cost_of_use,
    estimates_for,
    observed,
    store_cost,
)
from stado.core.ids import milliseconds
from stado.core.states import Verdict
from stado.core.usage import Use
from stado.errors import Refused

HOUR_MS = 3_600_000
NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
NOW_MS = milliseconds(NOW)
CATALOG = Catalog(date(2026, 1, 1), "ours", {"a100": 2.0}, {"m5": 0.4}, 0.02)
USE = Use(
    "abcdefghijklmnop",
    1,
    "ada",
    None,
    ended_ms=NOW_MS,
    wall_ms=HOUR_MS,
    verdict=Verdict.COMPLETED,
    model="resnet",
    hardware="cpu",
)
PRICED = replace(USE, price_micro=8_000_000, part_micro=250_000)


def job(number: int, **changes: object) -> Use:
    return replace(PRICED, job_id=f"abcdefghijklmno{chr(97 + number)}", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("use", "dollars"),
    [
        (PRICED, 2.0),
        (replace(PRICED, hardware="1x a100", share_milli=1000), 2.0),
        (replace(USE, hardware="2x a100", gpus=2, share_milli=2000), 4.0),
        (replace(USE, hardware="1x a100", gpus=1, share_milli=500), 1.0),
        (replace(USE, hardware="m5", part_micro=500_000), 0.2),
        (replace(USE, hardware="m5"), None),
        (replace(USE, hardware="1x h100", share_milli=1000), None),
        (USE, None),
        (replace(USE, hardware=None), None),
        (replace(PRICED, part_micro=0), 0.0),
    ],
)
def test_a_cost_is_time_times_the_part_times_the_price(use: Use, dollars: float | None) -> None:
    """R223: the host's own price goes before the catalog; what neither says is unpriced."""
    assert cost_of_use(use, CATALOG) == dollars


def test_shared_hosts_are_paid_once() -> None:
    """R223: the parts of all jobs of a host together cost what it costs."""
    parts = [replace(PRICED, part_micro=part) for part in (500_000, 250_000, 250_000)]
    assert sum(cost_of_use(part, CATALOG) or 0.0 for part in parts) == 8.0


def test_failed_and_lost_attempts_count_once_and_are_told_apart() -> None:
    """R223: each completed job bears them."""
    tally = CostTally("model", CATALOG, since_ms=0)
    for use in (
        job(0, epoch=1, verdict=Verdict.LOST),
        job(0, epoch=2, verdict=Verdict.RETRYING),
        job(0, epoch=3),
        job(1, verdict=Verdict.CANCELLED),
    ):
        tally.add(use)
    (group,) = tally.groups.values()
    assert (group.dollars, group.failed_dollars, group.completed, group.per_job) == (8.0, 4.0, 1, 8)


def test_what_has_no_price_is_never_nothing() -> None:
    """R223"""
    tally = CostTally("model", CATALOG, since_ms=0)
    tally.add(USE)
    assert (tally.total().known, tally.total().per_job) == (None, None)
    tally.add(job(1))
    assert (tally.total().known, tally.total().unpriced_epochs) == (2.0, 1)
    assert tally.total().per_job is None
    assert tally.total().unpriced_ms == HOUR_MS


ASKED = {"dear": 2_000, "cheap": 5_000, "received_bytes": 10**10, "sent_bytes": 7}
STORE = dataclasses.replace(CATALOG, put_thousand=0.005, get_thousand=0.0004)


@pytest.mark.parametrize(
    ("asked", "catalog", "dollars"),
    [
        (ASKED, STORE, 0.012),
        (ASKED, dataclasses.replace(STORE, egress_gb=0.1), 1.012),
        (ASKED, dataclasses.replace(STORE, get_thousand=None), None),
        ({**ASKED, "cheap": 0}, dataclasses.replace(STORE, get_thousand=None), 0.01),
        (dict.fromkeys(ASKED, 0), CATALOG, 0.0),
        ({}, STORE, None),
    ],
    ids=["requests", "egress", "unpriced", "none of that", "directory", "unknown"],
)
def test_what_was_asked_of_the_store_has_its_price(
    asked: dict[str, int], catalog: Catalog, dollars: float | None
) -> None:
    """R260: a directory is asked nothing that anybody bills, whatever the catalog says."""
    group = CostSum()
    group.add(replace(USE, **asked), None)
    found = store_cost(group, catalog)
    assert found is None if dollars is None else isclose(found or 0.0, dollars)


def test_the_store_is_in_a_sum_of_its_own() -> None:
    """R260: and counts once, on the day on which an epoch ended."""
    tally = CostTally("day", STORE, since_ms=0)
    tally.add(replace(PRICED, wall_ms=16 * HOUR_MS, **ASKED))
    tally.add(job(1))
    days = tally.groups
    assert [days[day].dear for day in ("2026-03-19", "2026-03-20")] == [0, 2_000]
    total = tally.total()
    assert (total.dear, total.cheap, total.epochs, total.metered_epochs) == (2_000, 5_000, 2, 1)
    assert isclose(store_cost(total, STORE) or 0.0, 0.012)
    assert total.dollars == 34.0


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("target", {"cpu"}),
        ("model", {"resnet"}),
        ("user", {"ada"}),
        ("batch", {"abcdefghijklmnop"}),
        ("job", {"abcdefghijklmnop-7"}),
        ("schedule", {"nightly"}),
        ("host", {"local@a"}),
        ("day", {"2026-03-19", "2026-03-20"}),
    ],
)
def test_rows_are_for_what_is_asked(by: str, names: set[str]) -> None:
    """R223: and days have the part that fell on them."""
    tally = CostTally(by, CATALOG, since_ms=0)
    use = replace(
        PRICED,
        job_id="abcdefghijklmnop-7",
        consumer="local@a",
        schedule="nightly",
        wall_ms=16 * HOUR_MS,
    )
    tally.add(use)
    assert set(tally.groups) == names
    assert isclose(sum(group.dollars for group in tally.groups.values()), 32.0)


def test_of_what_began_before_the_part_after_counts() -> None:
    tally = CostTally("user", CATALOG, since_ms=NOW_MS - HOUR_MS // 2)
    tally.add(PRICED)
    assert tally.total().dollars == 1.0


# --- estimates ----------------------------------------------------------------------------


def test_an_estimate_is_the_median_with_a_spread() -> None:
    """R224: of completed jobs of the model, with all of their attempts, on each target."""
    uses = [job(number, wall_ms=(number + 1) * HOUR_MS) for number in range(11)]
    uses.append(job(0, epoch=2, verdict=Verdict.LOST, wall_ms=20 * HOUR_MS))
    uses.append(job(20, hardware="m5"))
    cheap, dear = estimates_for(observed(uses, CATALOG), model="resnet", jobs=10)
    assert (cheap.observed.target, dear.observed.target) == ("m5", "cpu")
    assert dear.observed.dollars == [4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 42.0]
    assert (dear.dollars, dear.low, dear.high) == (140.0, 60.0, 220.0)
    assert len(cheap.observed.dollars) == 1


@pytest.mark.parametrize(
    "uses",
    [[], [USE], [job(0, verdict=Verdict.FAILED)], [job(0, model="bert")], [job(0, model=None)]],
)
def test_without_evidence_an_estimate_is_refused(uses: list[Use]) -> None:
    """R224: nothing is ever assumed."""
    with pytest.raises(Refused, match="no completed run of it has a price") as caught:
        estimates_for(observed(uses, CATALOG), model="resnet", jobs=10)
    assert caught.value.code == "no_cost_evidence"


def test_a_job_of_which_some_epoch_has_no_price_tells_nothing() -> None:
    """R224"""
    part = job(0, epoch=2, price_micro=None, verdict=Verdict.LOST)
    assert observed([job(0), part], CATALOG) == []


# --- what stands out ----------------------------------------------------------------------


def test_a_job_that_cost_more_than_three_medians_stands_out() -> None:
    """R225: of five jobs at least; failed attempts count."""
    uses = [job(number) for number in range(5)]
    lost = job(4, epoch=2, verdict=Verdict.LOST, wall_ms=3 * HOUR_MS)
    (found,) = costs.anomalies([*uses, lost], CATALOG)
    assert (found.job_id, found.dollars, found.median) == (lost.job_id, 8.0, 2.0)
    assert costs.anomalies([*uses[1:], lost], CATALOG) == []


def test_the_cheapest_target_of_a_model_saves() -> None:
    """R225: by medians, of three jobs on each at least."""
    dear = [job(number) for number in range(3)]
    cheap = [job(number, hardware="spot", price_micro=2_000_000) for number in range(10, 13)]
    (found,) = costs.savings([*dear, *cheap], CATALOG)
    assert (found.target, found.cheapest, found.jobs, found.dollars) == ("cpu", "spot", 3, 4.5)
    assert costs.savings([*dear, *cheap[1:]], CATALOG) == []


def test_a_forecast_goes_on_as_the_last_seven_days_did() -> None:
    """R225: and tells what has no price."""
    days = Days(CATALOG)
    for ago in range(1, 8):
        days.add(job(ago, ended_ms=NOW_MS - ago * 86_400_000, wall_ms=7 * HOUR_MS))
    days.add(USE)
    end_ms = milliseconds(datetime(2026, 4, 1, tzinfo=UTC))
    told = costs.forecast(days, now_ms=NOW_MS, month_end_ms=end_ms)
    assert (told.month, told.spent, told.per_day, told.days_left) == ("2026-03", 98.0, 14.0, 11.5)
    assert (told.dollars, told.unpriced_epochs) == (98.0 + 161.0, 1)
