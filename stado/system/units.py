"""Which declared unit of systemd a process belongs to, by its control group."""

from __future__ import annotations

import re

_UNIT = re.compile(r".+\.(?:service|scope)")
_UNDECLARED = re.compile(
    r"user@[0-9]+\.service|init\.scope|session-.*\.scope|(?:app|vte-spawn)-.*\.scope"
    r"|stado-agent(?:-.*)?\.service"
)
"""What holds whatever somebody starts: a log-in, a window, systemd itself, and our own agents,
whose jobs are in their groups."""


def declared_unit(groups: str) -> str | None:
    """`groups`: what proc(5) has as `/proc/<pid>/cgroup`. None: no unit that somebody declared for
    what runs in it."""
    for line in groups.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy != "0" and controllers != "name=systemd":
            continue
        for name in reversed(path.split("/")):
            if _UNIT.fullmatch(name):
                if not _UNDECLARED.fullmatch(name):
                    return name
                break  # what is around it holds units, not processes
    return None
