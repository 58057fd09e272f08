"""What a real agent tells of the cards of its host, and of whose processes are on them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from stado.core import keys
from stado.core.records import AcceleratorReport, Capacity
from stado.core.spec import Spec
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import Fleet, wait_for
from tests.engines.nvml import SEES_PIDS, NvidiaStandIn, card, stand_in_for_nvidia


@pytest.fixture
def nvidia() -> Iterator[NvidiaStandIn]:
    with stand_in_for_nvidia() as stand_in:
        yield stand_in


@pytest.fixture
def fleet(make_fleet: MakeFleet, nvidia: NvidiaStandIn) -> Fleet:
    fleet: Fleet = make_fleet(lease_seconds=4)
    fleet.see_cards_of(nvidia)
    return fleet


def capacity(fleet: Fleet, agent: str) -> Capacity:
    return fleet.repo.read(Capacity, keys.capacity(agent)).value


def reported(fleet: Fleet) -> list[AcceleratorReport]:
    return capacity(fleet, "one").accelerators


def wait_until_used(fleet: Fleet, mib: int) -> AcceleratorReport:
    wait_for(lambda: [report.vram_used_mib for report in reported(fleet)] == [mib])
    return reported(fleet)[0]


def test_it_is_told_which_jobs_and_which_others_use_a_card(
    fleet: Fleet, nvidia: NvidiaStandIn
) -> None:
    """R179, A40: when the process is killed its memory is nobody's, by the next report."""
    nvidia.play(card(0))
    fleet.agent("one", "--poll-seconds", "0.2")
    (job_id,) = fleet.submit("sleep 300", spec=Spec(command="")).job_ids
    started = fleet.started("one", job_id)
    with subprocess.Popen(["sleep", "300"]) as foreign:
        on_card = [[started.leader, 40_000], [foreign.pid, 19_000]]
        nvidia.play(card(0, used=60_000, processes=on_card))
        report = wait_until_used(fleet, 60_000)
        foreign.kill()
        assert report.kind == "a100-sxm4-80gb"
        if SEES_PIDS:
            assert (report.jobs, report.other_pids) == ([job_id], [foreign.pid])
            assert report.vram_used_by_others_mib == 20_000
        else:
            assert (report.jobs, report.vram_used_by_others_mib) == ([], 60_000)
    os.kill(started.leader, signal.SIGKILL)
    nvidia.play(card(0))
    report = wait_until_used(fleet, 0)
    assert (report.jobs, report.other_pids, report.vram_free_mib) == ([], [], 81_351)


def test_an_agent_goes_on_whatever_its_driver_does(fleet: Fleet, nvidia: NvidiaStandIn) -> None:
    nvidia.play(card(0), crash=["nvmlDeviceGetCount_v2"])
    fleet.agent("one")
    submission = fleet.submit("true", "true")
    fleet.wait_at_rest(submission)
    crash = "the probe of NVIDIA's driver was ended by signal 6"
    wait_for(lambda: capacity(fleet, "one").accelerators_unknown == crash)
    fleet.agent("two", "--no-accelerators")
    wait_for(lambda: fleet.repo.find(Capacity, keys.capacity("two")) is not None)
    spared = capacity(fleet, "two")
    assert (spared.accelerators, spared.accelerators_unknown) == ([], None)
