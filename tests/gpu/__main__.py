"""On a machine with a GPU: what the probe says, beside what `nvidia-smi` says.

`python -m tests.gpu`. Exits with 0 when they agree, or when there is no accelerator here; with 1
when they differ, or when nothing can be told.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

from stado.errors import AcceleratorsUnknown
from stado.ports import Accelerator
from stado.system.hardware import LiveHardware
from stado.system.nvidia_cards import kind_of

_SECONDS_MAX = 60.0
_LOOKS = 5
_APART_MIB = 256
"""Both look at a moment of their own."""


def main() -> int:
    try:
        cards = _look()
    except AcceleratorsUnknown as error:
        print(f"accelerators unknown: {error.strerror}")
        return 1
    if not cards:
        print("no accelerator here")
        return 0
    for card in cards:
        _show(card)
    flaws = _differences(cards, _asked_of_smi())
    print("\n".join(flaws) if flaws else "nvidia-smi says the same")
    return 1 if flaws else 0


def _look() -> list[Accelerator]:
    """Several times: the first look of all waits for the driver."""
    hardware = LiveHardware()
    deadline = time.monotonic() + _SECONDS_MAX
    cards = None
    while cards is None:
        began = time.monotonic()
        try:
            cards = hardware.accelerators()
        except AcceleratorsUnknown:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    for _ in range(_LOOKS if cards else 0):
        print(f"a look took {1000 * (time.monotonic() - began):.1f} ms")
        began = time.monotonic()
        cards = hardware.accelerators()
    return cards


def _show(card: Accelerator) -> None:
    load = "?" if card.utilisation is None else f"{card.utilisation:.0%}"
    print(f"{card.index}  {card.uuid}  {card.kind}  {card.ailment or 'well'}")
    print(f"   MiB: {card.vram_total_mib} in all, {card.vram_used_mib} used", end="")
    print(f", {card.vram_free_mib} free; load {load}")
    if card.processes is None:
        print("   who uses it cannot be told here")
    for process in card.processes or ():
        print(f"   process {process.pid}: {process.vram_mib} MiB")


def _asked_of_smi() -> list[list[str]]:
    """A row a card: id, name, MiB in use, free."""
    if shutil.which("nvidia-smi") is None:
        return []
    told = subprocess.run(
        [
            "nvidia-smi",
            "--query-gpu=uuid,name,memory.used,memory.free",
            "--format=csv,noheader,nounits",
        ],
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    print(f"\nnvidia-smi ({told.returncode}):\n{told.stdout}{told.stderr}")
    return [[cell.strip() for cell in row] for row in csv.reader(told.stdout.splitlines())]


def _differences(cards: Sequence[Accelerator], rows: Sequence[Sequence[str]]) -> list[str]:
    """Parts of a divided card have no rows, and are left to the eye."""
    whole = {card.uuid: card for card in cards if not card.uuid.startswith("MIG-")}
    is_any_divided = len(whole) < len(cards)
    flaws = [] if rows else ["nvidia-smi tells of no card"]
    for uuid, name, used, free in rows:
        card = whole.pop(uuid, None)
        if card is not None:
            flaws += _difference(card, name, used, free)
        elif not is_any_divided:
            flaws.append(f"{uuid} is not among what the probe found")
    return flaws + [f"{uuid} is unknown to nvidia-smi" for uuid in whole]


def _difference(card: Accelerator, name: str, used: str, free: str) -> list[str]:
    if not (used.isdecimal() and free.isdecimal()):
        return [] if card.ailment else [f"{card.uuid} ails to nvidia-smi: {used}, {free}"]
    if card.kind != kind_of(name):
        return [f"{card.uuid} is {name} to nvidia-smi"]
    apart = (card.vram_used_mib - int(used), card.vram_free_mib - int(free))
    if max(map(abs, apart)) > _APART_MIB:
        return [f"{card.uuid} has {used} MiB in use and {free} free to nvidia-smi"]
    return []


if __name__ == "__main__":
    sys.exit(main())
