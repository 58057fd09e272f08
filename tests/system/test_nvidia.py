"""NVIDIA's cards through the bindings as they ship: what is told of them, and that whatever a
driver does is a sentence and never the end of the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from stado.errors import AcceleratorsUnknown
from stado.ports import Accelerator, AcceleratorProcess
from stado.system.hardware import LiveHardware
from stado.system.nvidia import NvidiaAccelerators
from stado.system.nvidia_cards import kind_of
from stado.system.nvml_probe import has_card
from tests.engines.nvml import SEES_PIDS, NvidiaStandIn, card, stand_in_for_nvidia
from tests.jobs.fakes import FakeClock
from tests.system.commands import WAIT_SECONDS, eventually

GPU_IS_LOST, VERSION_MISMATCH, NO_PERMISSION, UNKNOWN_ERROR = 15, 18, 4, 999
DRIVER_NOT_LOADED = 9
HANDLE = "nvmlDeviceGetHandleByIndex_v2"
MEMORY = "nvmlDeviceGetMemoryInfo_v2"


@pytest.fixture
def nvidia() -> Iterator[NvidiaStandIn]:
    with stand_in_for_nvidia() as stand_in:
        yield stand_in


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def accelerators(nvidia: NvidiaStandIn, clock: FakeClock) -> Iterator[NvidiaAccelerators]:
    made = adapter(nvidia, clock)
    yield made
    made.close()


def adapter(
    nvidia: NvidiaStandIn, clock: FakeClock, *, patience_seconds: float = WAIT_SECONDS
) -> NvidiaAccelerators:
    return NvidiaAccelerators(
        environment=nvidia.environment,
        patience_seconds=patience_seconds,
        monotonic=clock.monotonic,
    )


def ailments(accelerators: NvidiaAccelerators) -> list[str | None]:
    return [one.ailment for one in accelerators.look()]


def test_a_card_is_told_with_its_figures(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    """R179."""
    processes = [[4242, 19_990], [77, None]]
    nvidia.play(card(0, used=20_000, utilisation=37, processes=processes, graphics=[[9, 5]]))
    told = tuple(AcceleratorProcess(*one) for one in ((9, 5), (77, None), (4242, 19_990)))
    assert LiveHardware(accelerators=accelerators).accelerators() == [
        Accelerator(
            uuid="GPU-0",
            kind="a100-sxm4-80gb",
            index=0,
            vram_total_mib=81_351,
            vram_used_mib=20_000,
            vram_free_mib=61_351,
            utilisation=0.37,
            processes=told if SEES_PIDS else None,
        )
    ]


def test_what_an_older_driver_does_not_tell_is_left_out(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    bare = card(0, old_driver=True, reserved=0, used=20)
    del bare["utilisation"]
    nvidia.play(bare)
    (found,) = accelerators.look()
    assert (found.vram_used_mib, found.utilisation, found.ailment) == (20, None, None)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-sxm4-40gb-mig-1g.5gb"),
        ("NVIDIA", "unknown"),
        ("\x1b[2J/../é" + "x" * 100, "2j-..-" + "x" * 57),
    ],
)
def test_a_model_is_a_word(name: str, kind: str) -> None:
    assert kind_of(name) == kind


SICK: list[tuple[dict[str, object], str | None]] = [
    ({"uncorrected": 3}, "its memory has had 3 errors that nothing corrected: reset it"),
    ({"retiring": 1}, "pages of its memory wait to be retired: reset it"),
    ({"rows": [5, 1, 1, 0]}, "rows of its memory wait to be remapped: reset it"),
    ({"rows": [5, 1, 1, 1]}, "rows of its memory could not be remapped: have it replaced"),
    ({"uncorrected": 0, "retiring": 0, "rows": [5, 0, 0, 0]}, None),
    (
        {"errors": {MEMORY: GPU_IS_LOST}},
        "it has fallen off the bus (GPU is lost): reboot the host",
    ),
    (
        {"errors": {HANDLE: GPU_IS_LOST}},
        "it has fallen off the bus (GPU is lost): reboot the host",
    ),
    ({"errors": {MEMORY: UNKNOWN_ERROR}}, "its driver says: Unknown Error"),
]


def test_a_sick_card_says_so_and_the_others_go_on(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    """R179."""
    nvidia.play(card(0), card(1, used=3))
    assert ailments(accelerators) == [None, None]
    for facts, why in SICK:
        nvidia.play(card(0, **facts), card(1, used=3))
        sick, well = accelerators.look()
        assert (sick.uuid, sick.kind, sick.vram_total_mib) == ("GPU-0", "a100-sxm4-80gb", 81_351)
        assert sick.ailment == why
        assert (well.uuid, well.ailment, well.vram_used_mib) == ("GPU-1", None, 3)


def test_a_card_that_was_lost_before_anybody_saw_it_is_listed(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    nvidia.play(card(0), card(1, errors={HANDLE: GPU_IS_LOST}))
    _, lost = accelerators.look()
    assert (lost.uuid, lost.kind, lost.index) == ("unknown-1", "unknown", 1)
    nvidia.play(card(0), card(1))
    assert [(one.uuid, one.ailment) for one in accelerators.look()] == [
        ("GPU-0", None),
        ("GPU-1", None),
    ]


def test_a_card_that_vanishes_is_not_left_out(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    nvidia.play(card(0), card(1))
    assert ailments(accelerators) == [None, None]
    nvidia.play(card(0))
    assert ailments(accelerators) == [None, "its driver no longer lists it: reboot the host"]


def test_a_sick_card_can_be_reset(nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators) -> None:
    """Which its driver refuses while somebody has it open."""
    nvidia.play(card(0))
    accelerators.look()
    accelerators.look()
    assert nvidia.events == ["initialised"]
    nvidia.play(card(0, uncorrected=1))
    accelerators.look()
    assert nvidia.events == ["initialised", "let-go"]
    nvidia.play(card(0))
    assert ailments(accelerators) == [None]


def test_a_card_of_others_is_left_out(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    """A control group of devices may keep this account from it."""
    nvidia.play(card(0, errors={HANDLE: NO_PERMISSION}), card(1))
    assert [one.uuid for one in accelerators.look()] == ["GPU-1"]


def test_parts_of_a_divided_card_are_devices(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    part = {
        "uuid": "MIG-7",
        "name": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "total": 40_000,
        "used": 9,
    }
    nvidia.play(card(0))
    assert ailments(accelerators) == [None]
    nvidia.play(card(0, parts=[part, {**part, "uuid": "MIG-8"}]))
    first, second = accelerators.look()
    assert (first.uuid, first.kind) == ("MIG-7", "a100-sxm4-80gb-mig-3g.40gb")
    assert (first.vram_total_mib, first.vram_free_mib, second.uuid) == (40_000, 39_991, "MIG-8")
    nvidia.play(card(0, uncorrected=1, parts=[part]))
    assert ["errors" in str(why) for why in ailments(accelerators)] == [True]
    nvidia.play(card(0, parts=[]))
    (whole,) = accelerators.look()
    assert (whole.uuid, whole.ailment) == ("GPU-0", "it is divided (MIG), but has no parts")


# The driver as a whole


def test_a_host_without_the_library_has_none(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    nvidia.remove_library()
    assert accelerators.look() == []
    assert nvidia.events == []


def test_a_library_that_cannot_be_loaded_is_told(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators
) -> None:
    nvidia.break_library()
    with pytest.raises(AcceleratorsUnknown, match=r"cannot be asked: .*libnvidia-ml\.so\.1"):
        accelerators.look()


def test_a_library_without_a_card_has_none(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators, tmp_path: Path
) -> None:
    """What is missing of a card that is there is told."""
    nvidia.play(errors={"nvmlInitWithFlags": DRIVER_NOT_LOADED})
    if has_card():
        with pytest.raises(AcceleratorsUnknown, match="Driver Not Loaded"):
            accelerators.look()
    else:
        assert accelerators.look() == []
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert has_card(str(tmp_path))
    (tmp_path / "a" / "class").write_text("0x020000\n")
    assert not has_card(str(tmp_path))
    assert not has_card(str(tmp_path / "absent"))


def test_a_library_that_is_installed_later_is_found(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators, clock: FakeClock
) -> None:
    nvidia.remove_library()
    assert accelerators.look() == []
    nvidia.add_library()
    nvidia.play(card(0))
    assert accelerators.look() == []
    clock.sleep(600)
    assert ailments(accelerators) == [None]


def test_a_driver_that_does_not_begin_is_told_and_asked_again(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators, clock: FakeClock
) -> None:
    nvidia.play(card(0), errors={"nvmlInitWithFlags": VERSION_MISMATCH})
    with pytest.raises(AcceleratorsUnknown, match="NVML/RM version mismatch"):
        accelerators.look()
    nvidia.play(card(0))
    with pytest.raises(AcceleratorsUnknown, match="NVML/RM version mismatch"):
        accelerators.look()
    clock.sleep(60)
    assert ailments(accelerators) == [None]


def test_a_driver_that_is_gone_makes_all_cards_ail(
    nvidia: NvidiaStandIn, accelerators: NvidiaAccelerators, clock: FakeClock
) -> None:
    nvidia.play(card(0), card(1))
    accelerators.look()
    nvidia.play(card(0), card(1), crash=["nvmlDeviceGetCount_v2"])
    abort = "the probe of NVIDIA's driver was ended by signal 6"
    assert ailments(accelerators) == [abort, abort]
    nvidia.remove_library()
    clock.sleep(60)
    assert all("driver is gone" in str(why) for why in ailments(accelerators))


def test_a_driver_that_hangs_is_waited_for_and_then_all_cards_ail(
    nvidia: NvidiaStandIn, clock: FakeClock
) -> None:
    """While it may be slow the last figures count."""
    nvidia.play(card(0), hang=["nvmlInitWithFlags"])
    accelerators = adapter(nvidia, clock, patience_seconds=0.01)
    with pytest.raises(AcceleratorsUnknown, match="has not answered yet"):
        accelerators.look()
    nvidia.play(card(0))
    assert eventually(lambda: well(accelerators))
    nvidia.play(card(0, used=5), hang=["nvmlDeviceGetCount_v2"])
    clock.sleep(19)
    assert ailments(accelerators) == [None]
    clock.sleep(21)
    assert ailments(accelerators) == ["NVIDIA's driver does not answer within 20 s"]
    nvidia.play(card(0, used=5))
    assert ailments(accelerators) != [None]
    clock.sleep(60)
    assert eventually(lambda: well(accelerators))
    accelerators.close()


def test_while_a_hung_probe_lives_no_other_is_started(
    nvidia: NvidiaStandIn, clock: FakeClock
) -> None:
    """What hangs in a kernel's driver outlives a KILL, and the next one would hang there too."""
    killed: list[int] = []
    accelerators = NvidiaAccelerators(
        environment=nvidia.environment,
        patience_seconds=0.01,
        monotonic=clock.monotonic,
        kill=lambda pid, _: killed.append(pid),
        end_seconds=0.01,
    )
    nvidia.play(card(0), hang=["nvmlInitWithFlags"])
    for _ in range(4):
        with pytest.raises(AcceleratorsUnknown):
            accelerators.look()
        clock.sleep(61)
    (hung,) = killed
    os.kill(hung, signal.SIGKILL)
    nvidia.play(card(0))
    assert eventually(lambda: well(accelerators))
    accelerators.close()


def well(accelerators: NvidiaAccelerators) -> bool:
    try:
        return ailments(accelerators) == [None]
    except AcceleratorsUnknown:
        return False


_AGENT = """
import time
from stado.errors import AcceleratorsUnknown
from stado.system.nvidia import NvidiaAccelerators
from stado.system.processes import LiveProcesses

accelerators = NvidiaAccelerators(patience_seconds=0.01)
try:
    accelerators.look()
except AcceleratorsUnknown:
    LiveProcesses().fork(lambda channel: time.sleep(60))
    print("forked", flush=True)
time.sleep(60)
"""


def test_the_probe_ends_with_the_agent_and_a_supervisor_goes_on(nvidia: NvidiaStandIn) -> None:
    """Even out of a call that hangs."""
    nvidia.play(card(0), hang=["nvmlInitWithFlags"])
    agent = subprocess.Popen(
        [sys.executable, "-c", _AGENT], env=nvidia.environment, stdout=subprocess.PIPE
    )
    with agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"forked\n"
        probe, supervisor = sorted(
            psutil.Process(agent.pid).children(), key=lambda child: child.create_time()
        )
        assert eventually(lambda: nvidia.events == ["hangs"])
        assert os.getsid(probe.pid) == probe.pid  # A terminal's Ctrl-C is the agent's.
        agent.kill()
    with supervisor_ended(supervisor):
        assert eventually(lambda: not lives(probe))
        assert lives(supervisor)


@contextmanager
def supervisor_ended(supervisor: psutil.Process) -> Iterator[None]:
    try:
        yield
    finally:
        supervisor.kill()


def lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
