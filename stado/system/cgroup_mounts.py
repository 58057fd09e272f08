"""Where the hierarchies of control groups are mounted, and which group in each is ours.

Distributions, containers and hosts in transition from version 1 to 2 mount them in different
places, so no path is assumed: the kernel says it in two files, see proc(5) and cgroups(7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

V2 = "v2"
MEMORY_V1 = "memory"
FREEZER_V1 = "freezer"

_CONTROLLERS_V1 = (MEMORY_V1, FREEZER_V1)
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy that this process has a group in."""

    kind: str
    """`V2`, or the controller of a hierarchy of version 1."""
    top: Path
    own: Path
    """The folder of our group: `top`, or below it."""

    def own_and_above(self) -> Iterator[Path]:
        """Our group and all around it that can be seen from here, the innermost first."""
        for folder in (self.own, *self.own.parents):
            yield folder
            if folder == self.top:
                return


def find_hierarchies(
    mountinfo: Path = Path("/proc/self/mountinfo"), membership: Path = Path("/proc/self/cgroup")
) -> list[Hierarchy]:
    """One of each kind at most; none where the kernel has no control groups or shows none."""
    try:
        groups = dict(_read_groups(_read(membership)))
        mounts = _read(mountinfo)
    except OSError:
        return []
    found: dict[str, Hierarchy] = {}
    for line in mounts:
        for hierarchy in _mounted(line, groups):
            found.setdefault(hierarchy.kind, hierarchy)
    return list(found.values())


def _read(path: Path) -> list[str]:
    # Paths in there need not be text in any encoding.
    return path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")[:-1]


def _read_groups(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Kind and path of each group of ours: lines such as `4:memory:/a` and `0::/a`."""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield V2, path
        for controller in controllers.split(","):
            if controller in _CONTROLLERS_V1:
                yield controller, path


def _mounted(line: str, groups: dict[str, str]) -> Iterator[Hierarchy]:
    left, _, right = line.partition(" - ")
    root, point = (_unescaped(field) for field in left.split(" ")[3:5])
    kind, _, options = right.split(" ", 2)
    kinds = {"cgroup2": (V2,), "cgroup": _CONTROLLERS_V1}.get(kind, ())
    for name in kinds:
        path = groups.get(name)
        if path is None or (name != V2 and name not in options.split(",")):
            continue
        # A path with ".." is outside of what our namespace shows.
        if Path(path).is_relative_to(root) and ".." not in Path(path).parts:
            yield Hierarchy(name, Path(point), Path(point) / Path(path).relative_to(root))


def _unescaped(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)
