"""What the machine of a page seems to have: GPUs, Docker, or systemd.

`eval "$(python -m tests.docs.equipment cards FOLDER 2)"` in a hidden step gives its shell two
cards; the same again changes what they are: `… cards FOLDER 2 --lost 1`. `docker FOLDER IMAGE`
starts an engine that has the image, `systemd FOLDER` puts systemd's commands first in PATH. They
are the stand-ins that other tests have (`tests/engines`, `tests/services`), and last as long as
the page.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.engines import StandIn
from tests.engines.nvml import NvidiaStandIn, card, play_in
from tests.services.stand_in import SystemdStandIn

_HANDLE, _GPU_IS_LOST = "nvmlDeviceGetHandleByIndex_v2", 15


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.docs.equipment")
    parser.add_argument("what", choices=("cards", "docker", "systemd"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("rest", nargs="?", default="")
    parser.add_argument("--lost", type=int, help="number of a card that has fallen off the bus")
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    if asked.what == "cards":
        variables = _cards(folder, int(asked.rest), lost=asked.lost)
    elif asked.what == "docker":
        variables = _docker(folder, asked.rest)
    else:
        variables = SystemdStandIn(folder).environment()
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")


def _cards(folder: Path, count: int, *, lost: int | None) -> Mapping[str, str]:
    flaws = {"errors": {_HANDLE: _GPU_IS_LOST}}
    cards = [card(number, **(flaws if number == lost else {})) for number in range(count)]
    if folder.exists():
        play_in(folder, *cards)
        return {}
    folder.mkdir()
    stand_in = NvidiaStandIn(folder)
    stand_in.play(*cards)
    seen = stand_in.environment
    return {name: seen[name] for name in ("PYTHONPATH", "LD_LIBRARY_PATH")}


def _docker(folder: Path, image: str) -> Mapping[str, str]:
    folder.mkdir()
    StandIn(folder).add_image(image)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


if __name__ == "__main__":
    main()
