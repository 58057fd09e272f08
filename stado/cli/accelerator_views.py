"""What an agent's report says of its host's accelerators: a cell, remarks, a line a card, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stado.core.records import AcceleratorReport, Capacity

_MIB_PER_GIB = 1024


def accelerators_cell(one: Capacity) -> str:
    """Those that nobody uses, of all: `1/2`. "" where there are none, `?` where nobody knows."""
    if one.accelerators_unknown is not None:
        return "?"
    if not one.accelerators:
        return ""
    return f"{sum(map(_is_idle, one.accelerators))}/{len(one.accelerators)}"


def _is_idle(report: AcceleratorReport) -> bool:
    return report.ailment is None and not report.jobs and not report.vram_used_by_others_mib


def accelerator_remarks(one: Capacity) -> Iterator[str]:
    """What is wrong with them."""
    if one.accelerators_unknown is not None:
        yield f"what GPUs it has is not known: {one.accelerators_unknown}"
    by_ailment: dict[str, set[int]] = {}
    for report in one.accelerators:
        if report.ailment is not None:
            by_ailment.setdefault(report.ailment, set()).add(report.index)
    for ailment, numbers in by_ailment.items():
        named = ", ".join(map(str, sorted(numbers)))
        yield f"GPU {named} {'is' if len(numbers) == 1 else 'are'} not given to jobs: {ailment}"


def accelerator_lines(one: Capacity) -> list[str]:
    """`0  a100-sxm4-80gb  80.0 GiB, 12.3 used (3.0 by others: pid 4242)  37 %`, aligned."""
    if one.accelerators_unknown is not None:
        return [f"not known: {one.accelerators_unknown}"]
    return _aligned([_texts(report) for report in one.accelerators])


def _texts(report: AcceleratorReport) -> list[str]:
    named = [str(report.index), report.kind]
    if report.ailment is not None:
        return [*named, f"not given to jobs: {report.ailment}"]
    load = "" if report.utilisation is None else f"{100 * report.utilisation:.0f} %"
    return [*named, _memory_text(report), load, ", ".join(report.jobs)]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The last text of a row makes no column wider."""
    columns = range(max(map(len, rows), default=0))
    widths = [max([len(row[n]) for row in rows if len(row) > n + 1], default=0) for n in columns]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]


def _memory_text(report: AcceleratorReport) -> str:
    used = f"{_gib(report.vram_total_mib)} GiB, {_gib(report.vram_used_mib)} used"
    if not report.vram_used_by_others_mib:
        return used
    pids = ", ".join(map(str, report.other_pids))
    whose = f": pid {pids}" if pids else ""
    return f"{used} ({_gib(report.vram_used_by_others_mib)} by others{whose})"


def _gib(mebibytes: int) -> str:
    return f"{mebibytes / _MIB_PER_GIB:.1f}"


def accelerator_fields(report: AcceleratorReport) -> dict[str, Any]:
    return {
        "uuid": report.uuid,
        "kind": report.kind,
        "index": report.index,
        "vram_total_mib": report.vram_total_mib,
        "vram_used_mib": report.vram_used_mib,
        "vram_free_mib": report.vram_free_mib,
        "vram_left_mib": report.vram_left_mib,
        "vram_used_by_others_mib": report.vram_used_by_others_mib,
        "other_pids": report.other_pids,
        "utilisation": report.utilisation,
        "ailment": report.ailment,
        "jobs": report.jobs,
    }
