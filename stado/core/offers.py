"""What a host has to give, as it said last: to the predicate that lets jobs in, its report looks
like the host itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stado.core.admission import Card, Offer, held_text
from stado.core.envelope import fact_codes, host_facts
from stado.core.records import AcceleratorReport, Capacity

_MIB_OF_GIB = 1024


def offer_left(capacity: Capacity) -> Offer:
    """What was left of it."""
    return Offer(
        cpu_milli=round(capacity.cpu_free * 1000),
        memory_mib=round(capacity.memory_free_gb * _MIB_OF_GIB),
        images=capacity.runs_images_by is not None,
        disk_mib=round(capacity.disk_left_gb * _MIB_OF_GIB),
        cards=tuple(_cards(capacity, empty=False)),
        facts=fact_codes(facts_of(capacity)),
        price_milli=price_milli(capacity),
        jobs=len(capacity.jobs),
        closed=capacity.closed,
    )


def offer_whole(capacity: Capacity) -> Offer:
    """What there would be if nothing ran there, and nobody else used it."""
    return Offer(
        cpu_milli=round(capacity.cpu_total * 1000),
        memory_mib=round(capacity.memory_total_gb * _MIB_OF_GIB),
        images=capacity.runs_images_by is not None,
        disk_mib=round(disk_for_jobs_gb(capacity) * _MIB_OF_GIB),
        cards=tuple(_cards(capacity, empty=True)),
        facts=fact_codes(facts_of(capacity)),
        price_milli=price_milli(capacity),
    )


def disk_for_jobs_gb(capacity: Capacity) -> float:
    """GiB that jobs could reserve together if nobody else used the disk."""
    total_gb = capacity.disk_total_gb or capacity.disk_free_gb
    return max(0.0, total_gb - capacity.disk_reserve_gb)


def facts_of(capacity: Capacity) -> tuple[str, ...]:
    facts = host_facts(
        consumer=capacity.consumer,
        machine_type=capacity.machine_type,
        provider=capacity.provider,
        spot=capacity.spot,
        labels=capacity.labels,
    )
    return tuple(facts)


def price_milli(capacity: Capacity) -> int:
    """Thousandths of a dollar an hour; 0 where nobody counts them."""
    price = capacity.price_per_hour
    return 0 if price is None else math.ceil(price * 1000)


def _cards(capacity: Capacity, *, empty: bool) -> Iterator[Card]:
    """Those that ail are given to nobody."""
    for report in capacity.accelerators:
        if report.ailment is None:
            yield _whole(report) if empty else _left(report)


def _whole(report: AcceleratorReport) -> Card:
    total = _usable_mib(report)
    return Card(report.uuid, report.kind, total_mib=total, free_mib=total)


def _usable_mib(report: AcceleratorReport) -> int:
    """Without what the driver keeps for itself."""
    return report.vram_used_mib + report.vram_free_mib


def _left(report: AcceleratorReport) -> Card:
    left = report.vram_free_mib if report.vram_left_mib is None else report.vram_left_mib
    others = report.vram_used_by_others_mib or 0
    return Card(
        report.uuid,
        report.kind,
        total_mib=_usable_mib(report),
        free_mib=left,
        taken=report.taken,
        closed=report.closed,
        others_mib=others,
        others=held_text(others, report.other_pids),
    )
