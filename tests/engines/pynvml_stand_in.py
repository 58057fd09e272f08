"""NVIDIA's bindings as they ship, over a library that is none: its figures come from a file. Copied
as `pynvml.py` into a folder that is first on the path of a process (`tests.engines.nvml`).

Functions of the library are found by their names, and get what the bindings hand to C.
"""

# ruff: noqa: N802, N805, N816 - names of NVML's, and functions that nobody is the self of
# mypy: ignore-errors

from __future__ import annotations

import ctypes
import importlib.machinery
import json
import os
import sys
import time

_HERE = os.path.dirname(os.path.abspath(__file__))
_SPEC = importlib.machinery.PathFinder.find_spec(
    __name__, [path for path in sys.path if os.path.abspath(path) != _HERE]
)
_SPEC.loader.exec_module(sys.modules[__name__])  # All of their names become ours.

SUCCESS, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, LIBRARY_ERROR = 0, 3, 6, 7, 999
MIB = 1024 * 1024


class Library:
    """As many devices as the file has `cards`, each with `parts` perhaps. `errors`: what functions
    return instead, of all or of one device; `hang`: functions that never return; `crash`: those
    that end the process."""

    def __getattr__(self, name):
        function = getattr(Functions, name)  # A name that is not there is unknown to the bindings.

        def call(*arguments):
            told = read()
            if name in told.get("crash", ()):
                os.abort()
            if name in told.get("hang", ()):
                note("hangs")
            while name in read().get("hang", ()):
                time.sleep(0.02)
            return told.get("errors", {}).get(name) or function(told, *arguments)

        return call


def read():
    with open(os.path.join(_HERE, "nvml.json")) as file:
        return json.load(file)


def of_device(function):
    """Gets the device's own part of the file."""

    def call(told, handle, *arguments):
        card, part = divmod(ctypes.cast(handle, ctypes.c_void_p).value - 1000, 100)
        device = told["cards"][card]
        if part:
            device = device["parts"][part - 1]
        return device.get("errors", {}).get(function.__name__) or function(device, *arguments)

    return call


def note(event):
    with open(os.path.join(_HERE, "events"), "a") as file:
        file.write(f"{event}\n")
    return SUCCESS


def give_handle(reference, number):
    address = ctypes.c_void_p(number)
    ctypes.memmove(reference, ctypes.byref(address), ctypes.sizeof(address))
    return SUCCESS


def give(reference, value):
    reference._obj.value = value
    return SUCCESS


def give_if(reference, device, name):
    return give(reference, device[name]) if name in device else NOT_SUPPORTED


def list_processes(processes, count, array):
    room, count._obj.value = count._obj.value, len(processes)
    if len(processes) > room:
        return INSUFFICIENT_SIZE
    for place, (pid, mib) in zip(array or (), processes, strict=False):
        place.pid = pid
        place.usedGpuMemory = 2**64 - 1 if mib is None else mib * MIB
    return SUCCESS


class Functions:
    def nvmlInitWithFlags(told, flags):
        print("a driver's own chatter", flush=True)
        return note("initialised")

    def nvmlShutdown(told):
        return note("let-go")

    def nvmlErrorString(told, code):
        return b"Driver/library version mismatch" if code == 18 else b"an error of the library"

    def nvmlDeviceGetCount_v2(told, count):
        return give(count, len(told["cards"]))

    def nvmlDeviceGetHandleByIndex_v2(told, index, handle):
        code = told["cards"][index.value].get("errors", {}).get("nvmlDeviceGetHandleByIndex_v2")
        return code or give_handle(handle, 1000 + 100 * index.value)

    @of_device
    def nvmlDeviceGetUUID(device, buffer, size):
        buffer.value = device["uuid"].encode()
        return SUCCESS

    @of_device
    def nvmlDeviceGetName(device, buffer, size):
        buffer.value = device["name"].encode()
        return SUCCESS

    @of_device
    def nvmlDeviceGetMemoryInfo_v2(device, memory):
        if device.get("old_driver"):
            return NOT_SUPPORTED
        memory._obj.reserved = device.get("reserved", 0) * MIB
        return Functions._memory(device, memory)

    @of_device
    def nvmlDeviceGetMemoryInfo(device, memory):
        return Functions._memory(device, memory)

    def _memory(device, memory):
        memory._obj.total = device["total"] * MIB
        memory._obj.used = device["used"] * MIB
        memory._obj.free = (device["total"] - device["used"] - device.get("reserved", 0)) * MIB
        return SUCCESS

    @of_device
    def nvmlDeviceGetUtilizationRates(device, rates):
        if "utilisation" not in device:
            return NOT_SUPPORTED
        rates._obj.gpu = device["utilisation"]
        return SUCCESS

    @of_device
    def nvmlDeviceGetComputeRunningProcesses_v3(device, count, array):
        return list_processes(device.get("processes", ()), count, array)

    @of_device
    def nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, array):
        return list_processes(device.get("graphics", ()), count, array)

    @of_device
    def nvmlDeviceGetTotalEccErrors(device, error, counter, count):
        if (error.value, counter.value) != (1, 0):
            return LIBRARY_ERROR
        return give_if(count, device, "uncorrected")

    @of_device
    def nvmlDeviceGetRetiredPagesPendingStatus(device, pending):
        return give_if(pending, device, "retiring")

    @of_device
    def nvmlDeviceGetRemappedRows(device, corrected, uncorrected, pending, failed):
        if "rows" not in device:
            return NOT_SUPPORTED
        for reference, value in zip(
            (corrected, uncorrected, pending, failed), device["rows"], strict=True
        ):
            give(reference, value)
        return SUCCESS

    @of_device
    def nvmlDeviceGetMigMode(device, current, pending):
        give(pending, 0)
        return give(current, 1) if "parts" in device else NOT_SUPPORTED

    @of_device
    def nvmlDeviceGetMaxMigDeviceCount(device, count):
        return give(count, 7)

    def nvmlDeviceGetMigDeviceHandleByIndex(told, handle, index, part):
        card = (ctypes.cast(handle, ctypes.c_void_p).value - 1000) // 100
        if index.value >= len(told["cards"][card]["parts"]):
            return NOT_FOUND
        return give_handle(part, 1000 + 100 * card + index.value + 1)


nvmlLib = Library()
