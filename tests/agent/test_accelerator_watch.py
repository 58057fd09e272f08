"""Whose memory of a card it is: the job's, another's, or nobody can say."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from stado.core.order import Needs
from stado.errors import AcceleratorsUnknown
from stado.ports import (
    Accelerator,
    AcceleratorProcess,
    Family,
    Hardware,
    Processes,
    ProcessIdentity,
)
from stado_agent.accelerator_watch import AcceleratorUse, AcceleratorWatch, reports
from stado_agent.workspace import HostFolder, SupervisorNote
from tests.agent.fakes import FakeHardware
from tests.jobs.fakes import FakeClock

SUPERVISOR = ProcessIdentity(500, 7)
JOB = "abcdefghijklmnop-07"
CONTAINER = "4f" * 32
TWENTY_OF_24 = Accelerator(
    uuid="GPU-0",
    kind="rtx-4090",
    index=0,
    vram_total_mib=24_564,
    vram_used_mib=20_480,
    vram_free_mib=4_084,
    utilisation=0.5,
    processes=(AcceleratorProcess(4242, 20_480),),
)
UNUSED = replace(TWENTY_OF_24, vram_used_mib=3, vram_free_mib=24_561, processes=())


def used(*processes: tuple[int, int | None]) -> Accelerator:
    return replace(
        TWENTY_OF_24, processes=tuple(AcceleratorProcess(pid, mib) for pid, mib in processes)
    )


class Owners:
    """Of processes: who is whose, and what was asked."""

    def __init__(self) -> None:
        self.by_pid: dict[int, str] = {}
        self.families: dict[str, Family] = {}

    def find_owners(self, pids: list[int], families: dict[str, Family]) -> dict[int, str]:
        self.families = families
        return {pid: self.by_pid[pid] for pid in pids if self.by_pid.get(pid) in families}


class Scene:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.hardware = FakeHardware()
        self.owners = Owners()
        self.folder = HostFolder(folder, "local@host-a")
        self.folder.make()
        self.watch = self.new_watch()

    def new_watch(self, *, enabled: bool = True) -> AcceleratorWatch:
        return AcceleratorWatch(
            self.clock,
            cast(Hardware, self.hardware),
            cast(Processes, self.owners),
            self.folder,
            boot_id="boot-1",
            enabled=enabled,
        )

    def note(
        self, job_id: str = JOB, *, boot_id: str | None = "boot-1", cards: tuple[str, ...] = ()
    ) -> None:
        self.folder.write_note(
            SupervisorNote(
                SUPERVISOR,
                job_id,
                1,
                Needs(1, 1),
                f"{job_id}.1",
                boot_id,
                ("/cgroup/stado-x",),
                cards,
            )
        )

    def look(self, *devices: Accelerator) -> list[AcceleratorUse]:
        self.hardware.devices = list(devices)
        return self.watch.sample()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_others_use_is_told_with_their_pids(scene: Scene) -> None:
    """R179: 20 of 24 GB are somebody's who is no job of this host."""
    (use,) = scene.look(TWENTY_OF_24)
    assert use.vram_used_by_others_mib == 20_480
    (report,) = reports([use], [])
    assert (report.uuid, report.kind, report.index) == ("GPU-0", "rtx-4090", 0)
    assert (report.vram_total_mib, report.vram_free_mib) == (24_564, 4_084)
    assert (report.vram_used_by_others_mib, report.other_pids) == (20_480, [4242])
    assert (report.utilisation, report.ailment, report.jobs) == (0.5, None, [])


def test_what_a_job_uses_is_its_own(scene: Scene) -> None:
    scene.note()
    scene.folder.workspace(JOB, 1).make()
    scene.folder.workspace(JOB, 1).container_file(1).write_text(f"{CONTAINER}\n")
    scene.owners.by_pid = {4242: JOB, 4243: JOB}
    (use,) = scene.look(used((4242, 15_000), (4243, 480), (77, 5_000)))
    assert use.vram_used_by_others_mib == 5_000
    (report,) = reports([use], [])
    assert (report.jobs, report.other_pids) == ([JOB], [77])
    family = Family(SUPERVISOR, [Path("/cgroup/stado-x")], [CONTAINER])
    assert scene.owners.families == {JOB: family}


def test_a_card_that_was_given_to_a_job_is_the_jobs_before_it_uses_it(scene: Scene) -> None:
    scene.note(cards=("GPU-0",))
    (use,) = scene.look(UNUSED)
    assert (use.by_jobs, use.vram_used_by_others_mib) == ({JOB: []}, 0)
    (use,) = scene.look(TWENTY_OF_24)
    assert (use.by_jobs, use.vram_used_by_others_mib) == ({JOB: []}, 20_480)


def test_who_uses_a_card_that_a_job_was_given_is_not_always_known(scene: Scene) -> None:
    scene.note(cards=("GPU-0",))
    (use,) = scene.look(replace(TWENTY_OF_24, processes=None))
    assert use.vram_used_by_others_mib is None


def test_a_note_of_another_boot_owns_nothing(scene: Scene) -> None:
    scene.note(boot_id="boot-0")
    scene.look(TWENTY_OF_24)
    assert scene.owners.families == {}


@pytest.mark.parametrize(
    ("device", "own", "by_others"),
    [
        (used((4242, 20_000)), [4242], 0),  # What a driver does not count for each process.
        (used((4242, 15_000)), [4242], 5_480),  # Somebody's whom the driver does not show.
        (used((4242, None), (77, 5_000)), [4242], 5_000),
        (used((4242, 20_000), (77, None)), [4242], 480),
        (used(), [], 20_480),  # A process that is gone, and its memory is not.
        (UNUSED, [], 0),
        (replace(TWENTY_OF_24, processes=None), [], 20_480),  # No job was given the card.
    ],
)
def test_what_is_not_told_is_estimated(
    scene: Scene, device: Accelerator, own: list[int], by_others: int
) -> None:
    scene.note()
    scene.owners.by_pid = dict.fromkeys(own, JOB)
    (use,) = scene.look(device)
    assert use.vram_used_by_others_mib == by_others


def test_a_sample_is_kept_until_something_has_ended(scene: Scene) -> None:
    """A40: the next poll after that sees what is free by then."""
    scene.hardware.devices = [TWENTY_OF_24]
    (first,) = scene.watch.latest()
    scene.hardware.devices = [UNUSED]
    scene.clock.sleep(4)
    assert scene.watch.latest() == [first]
    assert scene.watch.age_seconds() == 4
    scene.watch.look_again()
    (second,) = scene.watch.latest()
    assert (second.device, scene.watch.age_seconds()) == (UNUSED, 0)


def test_a_sample_is_not_gone_by_for_long(scene: Scene) -> None:
    """Somebody outside the queue may take a card at any moment."""
    scene.look(UNUSED)
    scene.hardware.devices = [TWENTY_OF_24]
    scene.clock.sleep(5)
    assert scene.watch.latest()[0].vram_used_by_others_mib == 20_480


def test_many_short_jobs_do_not_make_it_look_all_the_time(scene: Scene) -> None:
    scene.look(TWENTY_OF_24)
    scene.hardware.devices = [UNUSED]
    scene.watch.look_again()
    assert scene.watch.latest()[0].device == TWENTY_OF_24
    scene.clock.sleep(1)
    assert scene.watch.latest()[0].device == UNUSED


def test_a_driver_that_tells_nothing_is_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    scene.hardware.devices_error = AcceleratorsUnknown("NVIDIA's driver says: no")
    assert scene.watch.sample() == []
    assert scene.watch.sample() == []
    assert scene.watch.unknown == "NVIDIA's driver says: no"
    scene.hardware.devices_error = None
    scene.look(UNUSED)
    assert scene.watch.unknown is None
    told = [message for message in caplog.messages if "accelerators" in message]
    assert told == [
        'event=accelerators_unknown error="NVIDIA\'s driver says: no"',
        "event=accelerators count=0 kinds=none",
        "event=accelerators count=1 kinds=rtx-4090",
    ]


def test_what_ails_is_told_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sick = replace(UNUSED, ailment="it is lost")
    for device in (UNUSED, sick, sick, UNUSED):
        scene.look(device)
    assert [message for message in caplog.messages if "uuid" in message] == [
        "event=accelerator_ails uuid=GPU-0 why='it is lost'",
        "event=accelerator_well uuid=GPU-0",
    ]


def test_what_its_owner_keeps_is_not_looked_at(scene: Scene) -> None:
    scene.hardware.devices_error = AcceleratorsUnknown("never asked")
    watch = scene.new_watch(enabled=False)
    assert (watch.sample(), watch.unknown) == ([], None)
