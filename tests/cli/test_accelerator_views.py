"""What people read of a host's accelerators."""

from __future__ import annotations

from typing import Any

from stado.cli.accelerator_views import accelerator_lines
from stado.core.records import AcceleratorReport
from stado.jobs.health import agents
from tests.cli.conftest import Program, World, report

JOB = "abcdefghijklmnop-07"


def card(number: int, **facts: Any) -> AcceleratorReport:
    plain = {
        "uuid": f"GPU-{number}",
        "kind": "a100-sxm4-80gb",
        "index": number,
        "vram_total_mib": 81_920,
        "vram_used_mib": 0,
        "vram_free_mib": 81_351,
        "vram_used_by_others_mib": 0,
    }
    return AcceleratorReport(**(plain | facts))


USED = card(
    0,
    vram_used_mib=12_595,
    vram_used_by_others_mib=3_072,
    other_pids=[4242],
    vram_left_mib=60_000,
    utilisation=0.37,
    jobs=[JOB],
)
SICK = card(1, kind="t4", ailment="pages of its memory wait to be retired: reset it")


def test_a_line_a_card(world: World) -> None:
    report(world, "a@box", accelerators=[USED, SICK, card(10, vram_used_by_others_mib=None)])
    (sight,) = agents(world.repo)
    used, sick, idle = accelerator_lines(sight.capacity)
    memory = "80.0 GiB, 12.3 used (3.0 by others: pid 4242)"
    assert used == f"0   a100-sxm4-80gb  {memory}  37 %  {JOB}"
    why = "pages of its memory wait to be retired: reset it"
    assert sick == f"1   t4              not given to jobs: {why}"
    assert idle == "10  a100-sxm4-80gb  80.0 GiB, 0.0 used"


def test_what_is_not_known_is_said(world: World) -> None:
    report(world, "a@box", accelerators_unknown="NVIDIA's driver says: no")
    (sight,) = agents(world.repo)
    assert accelerator_lines(sight.capacity) == ["not known: NVIDIA's driver says: no"]


def test_hosts_counts_those_that_nobody_uses(stado: Program, world: World) -> None:
    report(world, "a@box", accelerators=[USED, SICK, card(2)])
    report(world, "b@box", accelerators_unknown="the driver does not answer")
    report(world, "c@box")
    header, *rows = stado("hosts").stdout.splitlines()
    place = header.index("GPUS")
    assert [row[place : place + 4].strip() for row in rows] == ["1/3", "?", ""]
    assert "GPU 1 is not given to jobs: pages of its memory wait" in rows[0]
    assert "what GPUs it has is not known: the driver does not answer" in rows[1]


def test_what_ails_several_is_said_once(stado: Program, world: World) -> None:
    why = "the driver does not answer"
    report(world, "a@box", accelerators=[card(number, ailment=why) for number in range(3)])
    assert f"GPU 0, 1, 2 are not given to jobs: {why}" in stado("hosts").stdout


def test_json_has_each_of_them(stado: Program, world: World) -> None:
    """R179."""
    report(world, "a@box", accelerators=[USED], disk_total_gb=2000)
    (host,) = stado.json("hosts")["hosts"]
    assert host["disk_total_gb"] == 2000
    assert host["clock_ahead_seconds"] == 0
    assert host["accelerators_unknown"] is None
    assert host["accelerators"] == [
        {
            "uuid": "GPU-0",
            "kind": "a100-sxm4-80gb",
            "index": 0,
            "vram_total_mib": 81_920,
            "vram_used_mib": 12_595,
            "vram_free_mib": 81_351,
            "vram_left_mib": 60_000,
            "vram_used_by_others_mib": 3_072,
            "other_pids": [4242],
            "utilisation": 0.37,
            "ailment": None,
            "jobs": [JOB],
        }
    ]
