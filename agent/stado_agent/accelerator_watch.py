"""What this host's accelerators are used for, and by whom: sampled now and then, not at each poll.

Nothing is decided here. Figures are of the last sample, whose age is told; a host whose driver
gives none still takes jobs that need no accelerator.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stado.core.admission import Card, held_text
from stado.core.records import ACCELERATORS_MAX, OTHER_PIDS_MAX, AcceleratorReport
from stado.errors import AcceleratorsUnknown
from stado.ports import (
    Accelerator,
    AcceleratorProcess,
    Clock,
    Family,
    Hardware,
    Processes,
)
from stado_agent.workspace import HostFolder, SupervisorNote

log = logging.getLogger(__name__)

_LOOK_SECONDS_MIN = 1.0
_FRESH_SECONDS = 5.0
"""A look costs some milliseconds; somebody outside the queue may take a card meanwhile."""
_RESIDUE_MIB = 512
"""So much may be in use of a card that no process is listed for: what a driver keeps for itself,
and what it does not count for each process."""


@dataclass(frozen=True, slots=True)
class AcceleratorUse:
    """An accelerator, and whose processes are on it."""

    device: Accelerator
    by_jobs: Mapping[str, Sequence[AcceleratorProcess]]
    """Of this host, by job id; empty of one that was given it and has nothing on it just now."""
    by_others: Sequence[AcceleratorProcess]

    @property
    def vram_used_by_others_mib(self) -> int | None:
        """What is in use and no job's of this host; None where who uses it cannot be told, and
        some job may."""
        if self.device.processes is None and self.by_jobs:
            return None
        foreign = sum(process.vram_mib or 0 for process in self.by_others)
        own = [process.vram_mib for some in self.by_jobs.values() for process in some]
        known = [mib for mib in own if mib is not None]
        if len(known) < len(own):
            return foreign
        rest = max(0, self.device.vram_used_mib - sum(known))
        return rest if self.by_others or rest > _RESIDUE_MIB else 0


class AcceleratorWatch:
    """Of one agent. `boot_id`: of this life of the host; notes of another one name nobody."""

    def __init__(
        self,
        clock: Clock,
        hardware: Hardware,
        processes: Processes,
        folder: HostFolder,
        *,
        boot_id: str | None,
        enabled: bool = True,
    ) -> None:
        self._clock = clock
        self._hardware = hardware
        self._processes = processes
        self._folder = folder
        self._boot_id = boot_id
        self._enabled = enabled
        self._uses: list[AcceleratorUse] = []
        self._sampled_at = float("-inf")
        self._stale = True
        self._told: Mapping[str, str | None] | None = None
        self.unknown: str | None = None
        """Why the last sample has none, although there is a driver."""

    def sample(self) -> list[AcceleratorUse]:
        """Looks: two seconds at most."""
        self._stale = False
        self._sampled_at = self._clock.monotonic()
        unknown = self.unknown
        try:
            devices = self._hardware.accelerators() if self._enabled else []
            self.unknown = None
        except AcceleratorsUnknown as error:
            devices, self.unknown = [], error.strerror
        if self.unknown is not None and self.unknown != unknown:
            log.warning("event=accelerators_unknown error=%r", self.unknown)
        notes = self._living_notes() if devices else []
        owners = self._owners([p.pid for one in devices for p in one.processes or ()], notes)
        self._uses = [_use(device, owners, notes) for device in devices]
        self._tell_changes(devices)
        return self._uses

    def latest(self) -> list[AcceleratorUse]:
        """What may be gone by: the last sample, unless it is too old, or `look_again` was called
        since."""
        if self.age_seconds() >= (_LOOK_SECONDS_MIN if self._stale else _FRESH_SECONDS):
            return self.sample()
        return self._uses

    def look_again(self) -> None:
        """Something that may have used one has just ended here."""
        self._stale = True

    def age_seconds(self) -> float:
        """Of the last sample."""
        return self._clock.monotonic() - self._sampled_at

    def _living_notes(self) -> list[SupervisorNote]:
        """Of all jobs that live here, those of dead supervisors that cannot be ended too."""
        return [note for note in self._folder.notes() if note.boot_id in (None, self._boot_id)]

    def _owners(self, pids: Sequence[int], notes: Sequence[SupervisorNote]) -> Mapping[int, str]:
        if not pids:
            return {}
        families = {
            note.job_id: Family(
                note.supervisor,
                [Path(folder) for folder in note.enclosure],
                self._folder.workspace_named(note.workspace).container_ids(),
            )
            for note in notes
        }
        return self._processes.find_owners(pids, families)

    def _tell_changes(self, devices: Sequence[Accelerator]) -> None:
        """A line when there are others than before, and for each that begins or ceases to ail."""
        before, now = self._told, {device.uuid: device.ailment for device in devices}
        self._told = now
        if before is None or before.keys() != now.keys():
            kinds = ",".join(device.kind for device in devices)
            log.info("event=accelerators count=%d kinds=%s", len(devices), kinds or "none")
        for uuid, ailment in now.items():
            if ailment is not None and ailment != (before or {}).get(uuid):
                log.warning("event=accelerator_ails uuid=%s why=%r", uuid, ailment)
            if ailment is None and (before or {}).get(uuid) is not None:
                log.info("event=accelerator_well uuid=%s", uuid)


def _use(
    device: Accelerator, owners: Mapping[int, str], notes: Sequence[SupervisorNote]
) -> AcceleratorUse:
    by_jobs: dict[str, list[AcceleratorProcess]] = {
        note.job_id: [] for note in notes if device.uuid in note.cards
    }
    for process in device.processes or ():
        if process.pid in owners:
            by_jobs.setdefault(owners[process.pid], []).append(process)
    others = [process for process in device.processes or () if process.pid not in owners]
    return AcceleratorUse(device, by_jobs, others)


def cards(uses: Sequence[AcceleratorUse]) -> list[Card]:
    """Those that can be given to jobs, as they are now, without what a driver keeps for itself."""
    return [
        Card(
            uuid=use.device.uuid,
            kind=use.device.kind,
            total_mib=use.device.vram_used_mib + use.device.vram_free_mib,
            free_mib=use.device.vram_free_mib,
            others_mib=use.vram_used_by_others_mib or 0,
            others=others_text(use),
        )
        for use in uses
        if use.device.ailment is None
    ]


def others_text(use: AcceleratorUse) -> str:
    """What no job of this host has of the card, for people."""
    pids = [process.pid for process in use.by_others[:OTHER_PIDS_MAX]]
    return held_text(use.vram_used_by_others_mib or 0, pids)


def reports(uses: Sequence[AcceleratorUse], left: Sequence[Card]) -> list[AcceleratorReport]:
    """As they are broadcast. `left`: what may still be given of them."""
    by_uuid = {card.uuid: card for card in left}
    return [_report(use, by_uuid.get(use.device.uuid)) for use in uses[:ACCELERATORS_MAX]]


def _report(use: AcceleratorUse, left: Card | None) -> AcceleratorReport:
    device = use.device
    return AcceleratorReport(
        uuid=device.uuid,
        kind=device.kind,
        index=device.index,
        vram_total_mib=device.vram_total_mib,
        vram_used_mib=device.vram_used_mib,
        vram_free_mib=device.vram_free_mib,
        vram_used_by_others_mib=use.vram_used_by_others_mib,
        other_pids=[process.pid for process in use.by_others[:OTHER_PIDS_MAX]],
        utilisation=device.utilisation,
        ailment=device.ailment,
        jobs=sorted(use.by_jobs)[:1024],
        vram_left_mib=None if left is None else max(0, left.free_mib),
        taken=left is not None and left.taken,
        closed=left is not None and left.closed,
    )
