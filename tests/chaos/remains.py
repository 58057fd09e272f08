"""What must not be left on the machine: processes, control groups, folders; and nothing in a log
that nobody foresaw.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from stado.ports import ProcessIdentity
from stado.system.cgroup_mounts import find_hierarchies
from stado.system.standing_group import find_owner
from tests.chaos.checker import Violation
from tests.chaos.processes import marked

_LINES_AROUND = 12


def processes_of_jobs(run: str) -> list[Violation]:
    return [
        Violation("nothing_runs", one.job_id, f"{one} lives on, on {one.host}")
        for one in marked(run)
        if one.job_id is not None
    ]


def processes(run: str) -> list[Violation]:
    """When agents and coordinators have left, too."""
    return [Violation("nothing_runs", one.host, f"{one} lives on") for one in marked(run)]


def groups(
    owners: Collection[ProcessIdentity], tops: Iterable[Path] | None = None
) -> list[Violation]:
    """Control groups that these agents and supervisors made, in any hierarchy of this host."""
    if tops is None:
        tops = [hierarchy.top for hierarchy in find_hierarchies()]
    return [
        Violation("no_groups", str(folder), "this control group is left")
        for top in tops
        for folder in top.rglob("stado-*")
        if find_owner(folder) in owners
    ]


def folders(hosts: Iterable[Path]) -> list[Violation]:
    """A host keeps nothing of jobs that are over."""
    return [
        Violation("no_folders", str(path), "this is left on the host")
        for host in hosts
        for folder in ("jobs", "supervisors")
        for path in sorted((host / folder).iterdir())
    ]


def tracebacks(logs: Iterable[Path]) -> Iterator[Violation]:
    """The end of the first one of each log."""
    for path in logs:
        lines = path.read_text(errors="replace").splitlines()
        starts = [number for number, line in enumerate(lines) if "Traceback" in line]
        if starts:
            shown = "\n    ".join(lines[starts[0] : starts[0] + _LINES_AROUND * 4])
            yield Violation("no_traceback", path.name, f"{len(starts)} of them:\n    {shown}")
