"""Where a supervisor works, and for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stado.core.order import ReadyEntry
from stado.jobs.claim import ANY_PLACE, Claimant, Place
from stado.jobs.repository import Repository
from stado.ports import Engine, Processes, ProcessIdentity
from stado.storage.port import OpenStore
from stado_agent.elsewhere import no_other_stores
from stado_agent.input_cache import InputCache
from stado_agent.log_spool import LogLimit
from stado_agent.secrets import Secrets, SecretSettings
from stado_agent.workspace import HostFolder, SupervisorNote, Workspace

LOG_LIMIT_DEFAULT = LogLimit(100 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Host:
    """One host, as one supervisor has it."""

    processes: Processes
    folder: HostFolder
    claimant: Claimant
    environment: Mapping[str, str]
    identity: ProcessIdentity
    """Of the supervisor's own process."""
    boot_id: str | None = None
    log_limit: LogLimit = LOG_LIMIT_DEFAULT
    open_store: OpenStore = no_other_stores
    cache_bytes: int = 0
    """Of what jobs have fetched that is kept for others."""
    checkpoint_bytes_per_second: float | None = None
    """Of one job's saves; None: as fast as the store takes them."""
    max_run_seconds: int | None = None
    """How long a command may run here, with all that is run again; None: no limit."""
    secrets: Secrets = field(default_factory=lambda: Secrets(SecretSettings()))
    engine: Engine | None = None
    """For jobs that run in images; None: they are not run here."""
    place: Place = ANY_PLACE
    """Of the job in the supervisor's hands."""
    enclosure: list[Path] = field(default_factory=list)
    """Of the last command: most commands of a supervisor have the same."""

    def input_cache(self, repo: Repository) -> InputCache:
        return InputCache(
            self.folder.inputs,
            limit_bytes=self.cache_bytes,
            clock=repo.clock,
            entropy=repo.entropy,
        )

    def note(
        self, entry: ReadyEntry, *, workspace: Workspace, epoch: int | None = None
    ) -> SupervisorNote:
        """What this supervisor writes down about the job in its hands."""
        return SupervisorNote(
            supervisor=self.identity,
            job_id=entry.job_id,
            epoch=entry.epoch if epoch is None else epoch,
            needs=entry.needs,
            cards=self.place.cards,
            workspace=workspace.root.name,
            boot_id=self.boot_id,
            enclosure=tuple(str(folder) for folder in self.enclosure),
        )
