"""What NVIDIA's driver says of its cards, as a program of its own: `nvml_probe.py PARENT-PID`.

A call of NVML may crash, or hang in the kernel for ever, and what it has initialised does not
survive a fork. So the agent never loads it, and asks this process: each line that it reads is
answered with one line of JSON. It ends when nothing more can be read, after an answer that has no
cards, and with its parent. It must never import anything of ours: it is started by its file.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_MIB = 1024 * 1024
_PR_SET_PDEATHSIG = 1
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""Linux numbers it so in every life. In another one the driver gives pids of that one, or of the
host's, and nothing tells which."""

_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"
"""Of PCI; a card without an output is of it too."""

_WORDS_MAX = 300

Facts = dict[str, Any]


def main() -> None:
    _end_with(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What a library prints is no answer.
    driver: _Driver | None = None
    for _ in iter(sys.stdin.readline, ""):
        try:
            driver = driver or _Driver(_load())
            answer = driver.look()
        except Exception as error:  # noqa: BLE001 - bindings and driver may not fit together
            answer = _answer_without_driver(error)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "cards" not in answer:
            return


def _answer_without_driver(error: Exception) -> Facts:
    if isinstance(error, OSError) and _LIBRARY in str(error) and "No such file" in str(error):
        return {"absent": str(error)}
    return {"failed": f"NVIDIA's driver cannot be asked: {error!r}"[:_WORDS_MAX]}


def _end_with(parent: int) -> None:
    """By KILL when the parent dies: a line that never comes is not waited for in a hung call."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()


def _load() -> Any:
    """NVML. Raises `OSError` where there is none, at a third of the price of its bindings."""
    ctypes.CDLL(_LIBRARY)
    import pynvml

    return pynvml


class _Driver:
    """`nvml`: the bindings."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._initialised = False
        self._shows_processes = _is_in_first_pid_namespace()
        self._untold = (
            *(nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND),
            *(nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_INVALID_ARGUMENT),
            *(nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_NO_DATA),
            nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        )

    def look(self) -> Facts:
        """`cards`, and `present`: the ids of whole cards, divided ones too. Or `failed`: why the
        driver as a whole does not answer; or `absent`: why there is none."""
        try:
            if not self._initialised:
                self._nvml.nvmlInit()
                self._initialised = True
            looks = [self._look_at(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        except self._nvml.NVMLError as error:
            unused = error.value == self._nvml.NVML_ERROR_DRIVER_NOT_LOADED and not has_card()
            words = f"NVIDIA's driver says: {error}"[:_WORDS_MAX]
            return {"absent": words} if unused else {"failed": words}
        cards = [card for _, devices in looks for card in devices]
        if any(card["ailment"] for card in cards):
            self._let_go()
        return {"cards": cards, "present": [uuid for uuid, _ in looks if uuid]}

    def _let_go(self) -> None:
        """A card can be reset only while nobody has it open."""
        self._initialised = False
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _look_at(self, index: int) -> tuple[str | None, list[Facts]]:
        """The id of a card, and its devices: itself, or its parts. One that is not for this
        account has none."""
        facts = _nothing_of(index)
        try:
            card = self._nvml.nvmlDeviceGetHandleByIndex(index)
            facts["uuid"] = self._nvml.nvmlDeviceGetUUID(card)
            facts["name"] = self._nvml.nvmlDeviceGetName(card)
            facts["ailment"] = self._ailment(card)
            if self._is_divided(card):
                return facts["uuid"], self._parts(card, facts)
            facts |= self._figures(card)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NO_PERMISSION and not facts["uuid"]:
                return None, []
            facts["ailment"] = self._words(error)
        return facts["uuid"], [facts]

    def _is_divided(self, card: Any) -> bool:
        mode = self._told(self._nvml.nvmlDeviceGetMigMode, card)
        return mode is not None and mode[0] == self._nvml.NVML_DEVICE_MIG_ENABLE

    def _parts(self, card: Any, of_card: Facts) -> list[Facts]:
        """Raises NVML's errors: then the card stands for them."""
        found = []
        for number in range(self._told(self._nvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0):
            part = self._told(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, number)
            if part is not None:
                names = {
                    "uuid": self._nvml.nvmlDeviceGetUUID(part),
                    "name": self._nvml.nvmlDeviceGetName(part),
                }
                found.append(of_card | names | self._figures(part))
        return found or [of_card | {"ailment": "it is divided (MIG), but has no parts"}]

    def _figures(self, device: Any) -> Facts:
        memory = self._told(
            self._nvml.nvmlDeviceGetMemoryInfo, device, self._nvml.nvmlMemory_v2
        ) or self._nvml.nvmlDeviceGetMemoryInfo(device)
        rates = self._told(self._nvml.nvmlDeviceGetUtilizationRates, device)
        # Not `memory.total`: what the driver keeps for itself is nobody's to be given.
        return {
            "total": (memory.used + memory.free) // _MIB,
            "used": memory.used // _MIB,
            "free": memory.free // _MIB,
            "utilisation": None if rates is None else min(1.0, rates.gpu / 100),
            "processes": self._processes(device),
        }

    def _processes(self, device: Any) -> list[tuple[int, int | None]] | None:
        """Of all sorts; one that is of two is listed in both. None where they cannot be told."""
        if not self._shows_processes:
            return None
        found: dict[int, list[int]] = {}
        for sort in ("Compute", "Graphics", "MPSCompute"):
            listed = self._listed(device, sort)
            if listed is None and sort == "Compute":
                return None
            for one in listed or ():
                told = [] if one.usedGpuMemory is None else [one.usedGpuMemory // _MIB]
                found[one.pid] = found.get(one.pid, []) + told
        return [(pid, max(mibs, default=None)) for pid, mibs in sorted(found.items())]

    def _listed(self, device: Any, sort: str) -> Any:
        """By the newest way that the driver knows: the bindings refuse to choose one."""
        for version in ("v3", "v2"):
            query = getattr(self._nvml, f"nvmlDeviceGet{sort}RunningProcesses_{version}")
            listed = self._told(query, device)
            if listed is not None:
                return listed
        return None

    def _ailment(self, card: Any) -> str | None:
        """What a reset or a replacement has to mend, though it answers."""
        nvml = self._nvml
        errors = self._told(
            nvml.nvmlDeviceGetTotalEccErrors,
            card,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
        retiring = self._told(nvml.nvmlDeviceGetRetiredPagesPendingStatus, card)
        rows = self._told(nvml.nvmlDeviceGetRemappedRows, card)
        _, _, remapping, unmapped = rows or (0, 0, 0, 0)
        if unmapped:
            return "rows of its memory could not be remapped: have it replaced"
        if errors:
            return f"its memory has had {errors} errors that nothing corrected: reset it"
        if retiring == nvml.NVML_FEATURE_ENABLED:
            return "pages of its memory wait to be retired: reset it"
        return "rows of its memory wait to be remapped: reset it" if remapping else None

    def _told(self, query: Callable[..., Any], *arguments: Any) -> Any:
        """None for what this card, or this driver, does not tell."""
        try:
            return query(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in self._untold:
                return None
            raise

    def _words(self, error: Any) -> str:
        if error.value == self._nvml.NVML_ERROR_GPU_IS_LOST:
            return "it has fallen off the bus (GPU is lost): reboot the host"
        if error.value == self._nvml.NVML_ERROR_RESET_REQUIRED:
            return "it does not work until it is reset"
        return f"its driver says: {error}"[:_WORDS_MAX]


def _nothing_of(index: int) -> Facts:
    names = {"uuid": None, "name": "", "index": index, "ailment": None}
    figures = {"total": 0, "used": 0, "free": 0, "utilisation": None, "processes": None}
    return names | figures


def has_card(devices: str = "/sys/bus/pci/devices") -> bool:
    """Whether a card of NVIDIA's is there, driver or no driver: images of hosts with the driver
    are used for hosts without a card too."""
    with suppress(OSError):
        return any(
            _read(f"{devices}/{name}/vendor") == _VENDOR
            and _read(f"{devices}/{name}/class").startswith(_DISPLAY_CLASS)
            for name in os.listdir(devices)
        )
    return False


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def _is_in_first_pid_namespace() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


if __name__ == "__main__":
    main()
