"""A host with NVIDIA's cards that has none: the bindings are the real ones, the library below them
is ours (`pynvml_stand_in.py`). What it cannot show is how a kernel's driver hangs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_BINDINGS = Path(__file__).with_name("pynvml_stand_in.py")
_LIBRARIES = ("/libc.so", "/libc-", "/ld-musl")

SEES_PIDS = os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"
"""In another namespace than the first nobody can say whose pid it is that a driver tells."""

A100 = "NVIDIA A100-SXM4-80GB"


def card(number: int, **facts: Any) -> dict[str, Any]:
    """An A100 that nobody uses, unless stated. Memory in MiB, utilisation in per cent."""
    plain = {"name": A100, "total": 81_920, "used": 0, "reserved": 569, "utilisation": 0}
    return {"uuid": f"GPU-{number}", **plain, **facts}


def play_in(folder: Path, *cards: dict[str, Any], **library: Any) -> None:
    """`NvidiaStandIn.play`, also of one that another process has made."""
    new = folder / "nvml.json.new"
    new.write_text(json.dumps({"cards": cards, **library}))
    new.replace(folder / "nvml.json")


class NvidiaStandIn:
    """Of one host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copy(_BINDINGS, folder / "pynvml.py")
        self.add_library()
        self.play()

    @property
    def environment(self) -> dict[str, str]:
        return self.environment_over(os.environ)

    def environment_over(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What makes a process see it, over all else."""
        first = {name: str(self._folder) for name in ("PYTHONPATH", "LD_LIBRARY_PATH")}
        given = {
            name: os.pathsep.join(filter(None, [path, environment.get(name)]))
            for name, path in first.items()
        }
        return {**environment, **given}

    def play(self, *cards: dict[str, Any], **library: Any) -> None:
        """From now on there are these cards. `library`: `errors`, `hang`, `crash` of functions."""
        play_in(self._folder, *cards, **library)

    @property
    def events(self) -> list[str]:
        """`initialised`, `let-go`, `hangs`: the library, in their order."""
        path = self._folder / "events"
        return path.read_text().split() if path.exists() else []

    def add_library(self) -> None:
        (self._folder / "libnvidia-ml.so.1").symlink_to(_some_library())

    def break_library(self) -> None:
        self.remove_library()
        (self._folder / "libnvidia-ml.so.1").write_text("no library")

    def remove_library(self) -> None:
        (self._folder / "libnvidia-ml.so.1").unlink()


@contextmanager
def stand_in_for_nvidia() -> Iterator[NvidiaStandIn]:
    with TemporaryDirectory(prefix="nvml-") as folder:
        yield NvidiaStandIn(Path(folder))


def _some_library() -> str:
    """Any that can be loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split(maxsplit=5)[-1].strip() for line in maps}
    return next(path for path in sorted(mapped) if any(name in path for name in _LIBRARIES))
