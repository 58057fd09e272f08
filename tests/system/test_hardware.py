"""The host's figures, with and without the limits of a control group."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stado.system.cgroup_mounts import MEMORY_V1, V2, Hierarchy
from stado.system.hardware import LiveHardware

MIB = 1024 * 1024


def grouped(folder: Path, files: dict[str, str], *, kind: str = V2) -> LiveHardware:
    """A host whose process is in the control group /box/task."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return LiveHardware(hierarchies=[Hierarchy(kind, top=folder, own=folder / "box" / "task")])


def ungrouped() -> LiveHardware:
    return LiveHardware(hierarchies=[])


def test_without_limits_the_affinity_counts() -> None:
    assert ungrouped().cpu_count() == len(os.sched_getaffinity(0))


def test_a_narrower_affinity_counts() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert ungrouped().cpu_count() == 1.0
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    ("own", "outer", "cores"),
    [
        ("50000 100000\n", "max 100000\n", 0.5),
        ("max 100000\n", "25000 100000\n", 0.25),
        ("50000 100000\n", "25000 100000\n", 0.25),
    ],
)
def test_the_tightest_cpu_quota_counts(tmp_path: Path, own: str, outer: str, cores: float) -> None:
    hardware = grouped(tmp_path, {"box/task/cpu.max": own, "box/cpu.max": outer})
    assert hardware.cpu_count() == cores


def test_a_quota_above_the_cores_changes_nothing(tmp_path: Path) -> None:
    hardware = grouped(tmp_path, {"box/task/cpu.max": "99900000 100000\n"})
    assert hardware.cpu_count() == len(os.sched_getaffinity(0))


def test_a_memory_limit_bounds_total_and_available(tmp_path: Path) -> None:
    hardware = grouped(
        tmp_path,
        {
            "box/task/memory.max": f"{64 * MIB}\n",
            "box/task/memory.current": f"{50 * MIB}\n",
            "box/task/memory.stat": f"anon 1\ninactive_file {10 * MIB}\n",
            "box/memory.max": "max\n",
        },
    )
    assert hardware.memory_total_bytes() == 64 * MIB
    assert hardware.memory_available_bytes() == 24 * MIB


def test_a_memory_limit_of_version_1_bounds_too(tmp_path: Path) -> None:
    hardware = grouped(
        tmp_path,
        {
            "box/task/memory.limit_in_bytes": "9223372036854771712\n",
            "box/memory.limit_in_bytes": f"{64 * MIB}\n",
            "box/memory.usage_in_bytes": f"{50 * MIB}\n",
            "box/memory.stat": f"inactive_file 1\ntotal_inactive_file {10 * MIB}\n",
        },
        kind=MEMORY_V1,
    )
    assert hardware.memory_total_bytes() == 64 * MIB
    assert hardware.memory_available_bytes() == 24 * MIB


def test_a_group_over_its_limit_has_nothing_available(tmp_path: Path) -> None:
    hardware = grouped(
        tmp_path, {"box/memory.max": f"{MIB}\n", "box/memory.current": f"{2 * MIB}\n"}
    )
    assert hardware.memory_available_bytes() == 0


def test_without_limits_the_host_counts() -> None:
    hardware = ungrouped()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert hardware.memory_total_bytes() == pytest.approx(total, rel=0.01)
    assert 0 < hardware.memory_available_bytes() < hardware.memory_total_bytes()


def test_the_real_host_answers_everything(tmp_path: Path) -> None:
    hardware = LiveHardware()
    assert hardware.host_name()
    assert hardware.cpu_count() > 0
    assert hardware.memory_total_bytes() > 0
    assert hardware.disk_free_bytes(tmp_path) > 0
    with pytest.raises(OSError, match="absent"):
        hardware.disk_free_bytes(tmp_path / "absent")


def test_psutil_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys\n"
        "from stado.system.hardware import LiveHardware\n"
        "LiveHardware().cpu_count()\n"
        "assert 'psutil' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
