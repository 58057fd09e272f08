"""Folders of an agent on its host: what a job may use while it runs, and what tells a restarted
agent which supervisors still live.

Layout below `<work-dir>/<consumer>/`: `lock`, `quarantine.json`, `supervisors/<pid>.json`,
`jobs/<job>.<epoch>/{work,inputs,output,checkpoints,report,log}`; `log/` is a spool (`log_spool`),
and `log/epoch.json` says whose. Nothing of this outlives its job but what could not be delivered.
What jobs have fetched is kept in `inputs/` (`input_cache`) and `code/{snapshots,repos}`
(`host_cache`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from stado.core import keys
from stado.core.order import Needs, parse_needs
from stado.jobs.folders import remove_folder
from stado.ports import Clock, ProcessIdentity
from stado_agent.log_shipping import LogEpoch

_CONTAINER_PREFIX = "container-"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one job's epoch."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def inputs(self) -> Path:
        return self.root / "inputs"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def report(self) -> Path:
        return self.root / "report"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def failed_line(self) -> Path:
        """Where a strict shell leaves which line of a command failed."""
        return self.root / "strict" / "failed-line"

    def make(self) -> None:
        """Fresh and empty: what an earlier life of the same epoch left is removed."""
        if self.root.exists():
            remove_folder(self.root)
        self.root.mkdir(mode=0o700, parents=True)
        given = (self.work, self.inputs, self.output, self.checkpoints)
        for folder in (*given, self.report, self.log):
            folder.mkdir(mode=0o700)

    def container_file(self, number: int) -> Path:
        """Where the engine's client leaves the id of the container of a command."""
        return self.root / f"{_CONTAINER_PREFIX}{number}"

    def container_ids(self) -> list[str]:
        """Of all that its commands were started in; ids are not used again."""
        with suppress(OSError):
            files = sorted(self.root.glob(f"{_CONTAINER_PREFIX}*"))
            return [file.read_text("ascii", "replace").strip() for file in files]
        return []

    def write_log_epoch(self, of: LogEpoch) -> None:
        """Whose log the spool holds from now on, for who finds it here: at first that of the epoch
        in the workspace's name."""
        _replace_file(self._log_epoch_path, json.dumps(asdict(of)).encode())

    def find_log_epoch(self) -> LogEpoch | None:
        """None when there is no log that anybody could want. Raises `OSError`."""
        try:
            return LogEpoch(**json.loads(self._log_epoch_path.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            job_id, _, epoch = self.root.name.rpartition(".")
            return LogEpoch(job_id, int(epoch)) if job_id and epoch.isdecimal() else None

    def remove(self) -> None:
        remove_folder(self.root)

    @property
    def _log_epoch_path(self) -> Path:
        return self.log / "epoch.json"


@dataclass(frozen=True, slots=True)
class SupervisorNote:
    """What a supervisor writes down about itself while it has a job."""

    supervisor: ProcessIdentity
    job_id: str
    epoch: int
    needs: Needs
    workspace: str
    """Name of its folder below `jobs/`: that of the first epoch, should it have adopted another."""

    boot_id: str | None = None
    """Of the host's life in which the supervisor was started: a pid of an earlier one says
    nothing."""
    enclosure: tuple[str, ...] = ()
    """What keeps the command's processes together (`JobProcess.enclosure`)."""
    cards: tuple[str, ...] = ()
    """UUIDs of the accelerators that it was given."""
    priority: int = 0
    yields_left: int = 0
    """How often the job may still be put back for a more urgent one."""
    work_since: float = 0.0
    """Seconds since 1970 on the host's clock: what it has done since then would be done again."""

    def encode(self) -> bytes:
        return json.dumps(
            {
                "supervisor": [self.supervisor.pid, self.supervisor.started],
                "boot_id": self.boot_id,
                "enclosure": list(self.enclosure),
                "job_id": self.job_id,
                "epoch": self.epoch,
                "needs": self.needs.encode(),
                "cards": list(self.cards),
                "priority": self.priority,
                "yields_left": self.yields_left,
                "work_since": self.work_since,
                "workspace": self.workspace,
            }
        ).encode()


def decode_note(data: bytes) -> SupervisorNote | None:
    """None for what a crash cut short: the store knows the rest."""
    try:
        fields = json.loads(data)
        return SupervisorNote(
            supervisor=ProcessIdentity(*fields["supervisor"]),
            job_id=fields["job_id"],
            epoch=fields["epoch"],
            needs=_needs(fields),
            workspace=fields["workspace"],
            boot_id=fields.get("boot_id"),
            cards=tuple(fields.get("cards", ())),
            priority=fields.get("priority", 0),
            yields_left=fields.get("yields_left", 0),
            work_since=fields.get("work_since", 0.0),
            enclosure=tuple(fields.get("enclosure", ())),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _needs(fields: Mapping[str, Any]) -> Needs:
    """Older notes have two numbers. Raises `ValueError` for what is neither."""
    stated = fields["needs"]
    if not isinstance(stated, str):
        cpu_milli, memory_mib = stated
        return Needs(cpu_milli, memory_mib, image=fields.get("image", False))
    needs = parse_needs(stated)
    if needs is None:
        raise ValueError(stated)
    return needs


class HostFolder:
    """The agent's folder on this host. `clock` dates the signs of life in it; None: the host's
    own does."""

    def __init__(self, work_dir: Path, consumer: str, clock: Clock | None = None) -> None:
        # Jobs find their folders by it, and work in another folder than the agent.
        self.root = work_dir.absolute() / keys.component(consumer)
        self._clock = clock
        self._notes = self.root / "supervisors"

    def make(self) -> None:
        for folder in (self.root, self._notes, self.root / "jobs"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def inputs(self) -> Path:
        """What jobs of this host have fetched before."""
        return self.root / "inputs"

    @property
    def lock_path(self) -> Path:
        return self.root / "lock"

    @property
    def snapshots(self) -> Path:
        """Archives that were fetched for jobs (`host_cache`)."""
        return self.root / "code" / "snapshots"

    @property
    def repos(self) -> Path:
        """Repositories that jobs checked out of."""
        return self.root / "code" / "repos"

    def workspace(self, job_id: str, epoch: int) -> Workspace:
        return self.workspace_named(f"{job_id}.{epoch}")

    def workspace_named(self, name: str) -> Workspace:
        return Workspace(self.root / "jobs" / name)

    def leftover_workspaces(self) -> list[Workspace]:
        """Of jobs that no supervisor here has any more. None as long as a note cannot be read: any
        workspace could be the one that it names."""
        notes = [self._try_to_read(path) for path in self._notes.glob("*.json")]
        if None in notes:
            return []
        in_use = {note.workspace for note in self.notes()}
        names = sorted(path.name for path in (self.root / "jobs").iterdir())
        return [self.workspace_named(name) for name in names if name not in in_use]

    @staticmethod
    def _try_to_read(path: Path) -> bytes | None:
        """b"" for what is gone by now, None for what the host does not let us read."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError:
            return None

    def write_note(self, note: SupervisorNote) -> None:
        _replace_file(self._note_path(note.supervisor.pid), note.encode())
        if self._clock is not None:
            self.touch_note(note.supervisor.pid)

    def touch_note(self, pid: int) -> None:
        """A sign of life that needs no store. A host that does not take it ends no job."""
        path = self._note_path(pid)
        with suppress(OSError):
            if self._clock is None:
                os.utime(path)
            else:
                now = round(self._clock.monotonic() * 1e9)
                os.utime(path, ns=(now, now))

    def remove_note(self, pid: int) -> None:
        self._note_path(pid).unlink(missing_ok=True)

    def read_note(self, pid: int) -> SupervisorNote | None:
        """None when there is none, or none that says anything."""
        try:
            return decode_note(self._note_path(pid).read_bytes())
        except OSError:
            return None

    def signs(self, pid: int) -> int:
        """Changes whenever the supervisor has given a sign; 0 when it has no job, or the host does
        not tell."""
        try:
            return self._note_path(pid).stat().st_mtime_ns
        except OSError:
            return 0

    def notes(self) -> Iterator[SupervisorNote]:
        """Of all supervisors that have a job; one may end while we look, and what the host does
        not let us read says nothing."""
        for path in sorted(self._notes.glob("*.json")):
            try:
                note = decode_note(path.read_bytes())
            except OSError:
                continue
            if note is None:
                path.unlink(missing_ok=True)
            else:
                yield note

    def write_quarantine(self, *, detail: str, since: datetime) -> None:
        """Raises `OSError`."""
        fields = {"detail": detail, "since": since.isoformat()}
        _replace_file(self._quarantine_path, json.dumps(fields).encode())

    def read_quarantine(self) -> tuple[str, datetime] | None:
        """Detail and beginning; None: there is none. Raises `OSError`, `ValueError` for what says
        nothing."""
        try:
            fields = json.loads(self._quarantine_path.read_bytes())
        except FileNotFoundError:
            return None
        if not isinstance(fields, dict):
            raise ValueError("it is no JSON object")
        since = datetime.fromisoformat(str(fields.get("since")))
        if since.tzinfo is None:
            raise ValueError("its instant has no zone")
        return str(fields.get("detail"))[:1024], since

    def remove_quarantine(self) -> None:
        """Raises `OSError`."""
        self._quarantine_path.unlink(missing_ok=True)

    def write_idle_use(self, data: bytes) -> None:
        """Raises `OSError`."""
        _replace_file(self._idle_use_path, data)

    def read_idle_use(self) -> bytes:
        """Raises `OSError`, also where there is none."""
        return self._idle_use_path.read_bytes()

    @property
    def _idle_use_path(self) -> Path:
        return self.root / "idle_use.json"

    @property
    def _quarantine_path(self) -> Path:
        return self.root / "quarantine.json"

    def _note_path(self, pid: int) -> Path:
        return self._notes / f"{pid}.json"


def _replace_file(path: Path, data: bytes) -> None:
    """Whole or not at all. Raises `OSError`, and leaves what was there."""
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
