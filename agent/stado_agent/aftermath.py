"""After a supervisor has died: what is left of its job is ended first, then its epoch, and what its
log holds is salvaged.

Nothing is said of an epoch while a process of it lives: what cannot be killed keeps its place on
this host, and its epoch, until it is gone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from stado.core.admission import Reservation
from stado.core.moves import Loss
from stado.core.records import Holder
from stado.core.states import Reason, State
from stado.errors import EngineFailed, StoreError, Unreadable
from stado.jobs.claim import Claimant
from stado.jobs.endings import as_queued_last, ending_of_lost, give_verdict, settle
from stado.jobs.finding import find_job
from stado.jobs.repository import Repository
from stado.ports import Engine, Processes, ProcessIdentity
from stado_agent.container import AGENT_LABEL, SUPERVISOR_LABEL, supervisor_name
from stado_agent.workspace import HostFolder

log = logging.getLogger(__name__)

_KILL_AGAIN_SECONDS = 5.0
_ASK_AGAIN_SECONDS = 30.0
_SALVAGE_AGAIN_SECONDS = 30.0
_SALVAGE_AGAIN_SECONDS_MAX = 3600.0


@dataclass(slots=True)
class _Death:
    """A supervisor that is gone, with what it had in hand."""

    supervisor: ProcessIdentity
    job_id: str
    epoch: int
    held: Reservation
    enclosure: list[Path]
    ended: bool
    """Whether nothing of its job lives any more."""
    outlived: bool = False
    """Whether it was seen alive after the agent that claimed its job had gone."""
    kill_at: float = float("-inf")


class Aftermath:
    """Of all supervisors of this host that have died."""

    def __init__(
        self,
        repo: Repository,
        processes: Processes,
        folder: HostFolder,
        claimant: Claimant,
        *,
        engine: Engine | None = None,
        boot_id: str | None = None,
    ) -> None:
        self._engine = engine
        self._boot_id = boot_id
        self._repo = repo
        self._processes = processes
        self._folder = folder
        self._claimant = claimant
        self._deaths: list[_Death] = []
        self._ask_at = float("-inf")

    @property
    def reserved(self) -> list[Reservation]:
        """What those still use whose processes cannot be ended."""
        return [death.held for death in self._deaths if not death.ended]

    @property
    def supervisors(self) -> set[ProcessIdentity]:
        return {death.supervisor for death in self._deaths}

    @property
    def job_ids(self) -> set[str]:
        return {death.job_id for death in self._deaths}

    def begin(
        self,
        supervisor: ProcessIdentity,
        *,
        job_id: str,
        epoch: int,
        held: Reservation,
        of_this_boot: bool = True,
        outlived: bool = False,
    ) -> None:
        """Its note, if there is one, names what held the command together, and the epoch that it
        may have adopted since. Of an earlier life of the host nothing lives."""
        note = self._folder.read_note(supervisor.pid)
        if note is None or note.supervisor != supervisor:
            enclosure = []
        else:
            enclosure, epoch = [Path(folder) for folder in note.enclosure], note.epoch
        self._deaths.append(
            _Death(supervisor, job_id, epoch, held, enclosure, not of_this_boot, outlived)
        )

    def turn(self) -> bool:
        """Ends what lives of all of them, before the store is asked about any. Whether somebody
        is done with."""
        for death in self._deaths:
            if not death.ended:
                self._kill(death)
        before = len(self._deaths)
        if self._repo.clock.monotonic() >= self._ask_at:
            self._end_epochs()
        return len(self._deaths) < before

    def _end_epochs(self) -> None:
        """Of all whose processes are ended. A store that is away is asked once, and later again:
        meanwhile a reaper may be faster."""
        for death in [death for death in self._deaths if death.ended]:
            try:
                self._end_as_lost(death)
            except Unreadable as error:
                log.warning("event=left_to_reaper job=%s error=%r", death.job_id, str(error))
            except StoreError as error:
                log.warning("event=end_delayed job=%s error=%r", death.job_id, str(error))
                self._ask_at = self._repo.clock.monotonic() + _ASK_AGAIN_SECONDS
                return
            self._deaths.remove(death)
            try:
                self._folder.remove_note(death.supervisor.pid)
            except OSError as error:
                log.warning("event=note_left job=%s error=%r", death.job_id, str(error))

    def _kill(self, death: _Death) -> None:
        now = self._repo.clock.monotonic()
        if now < death.kill_at:
            return
        first = death.kill_at == float("-inf")
        death.kill_at = now + _KILL_AGAIN_SECONDS
        why = "it does not end"
        try:
            death.ended = self._processes.kill_session(death.supervisor, death.enclosure)
            if death.ended and death.held.needs.image:
                death.ended = False
                self._end_containers(death.supervisor)
                death.ended = True
        except EngineFailed as error:
            why = f"whether a container of it lives is not known: {error.strerror}"
            death.kill_at = now + _ASK_AGAIN_SECONDS
        except OSError as error:
            why = str(error)
        if death.ended:
            return
        # Our reports of the job tell others that something of it lives.
        self._folder.touch_note(death.supervisor.pid)
        if first:
            log.error(
                "event=unkillable job=%s supervisor=%d error=%r",
                death.job_id,
                death.supervisor.pid,
                why,
            )

    def _end_containers(self, supervisor: ProcessIdentity) -> None:
        """Returns when the engine has said that there is none any more: they are not processes of
        the supervisor's. Raises `EngineFailed`."""
        if self._engine is None:
            raise EngineFailed(
                "no container engine is used here now: start the agent with --docker"
            )
        label = f"{SUPERVISOR_LABEL}={supervisor_name(supervisor, self._boot_id)}"
        for container in self._engine.containers(label, telling=SUPERVISOR_LABEL):
            self._engine.remove(container)
            log.info("event=container_ended container=%s", container)

    def sweep_containers(self) -> None:
        """Those of this agent whose supervisors are gone, without anybody who remembers them: of an
        earlier life of the host, or made by a request that outlived who asked. Raises
        `EngineFailed`."""
        if self._engine is None:
            return
        label = f"{AGENT_LABEL}={self._folder.root.name}"
        for container, supervisor in self._engine.containers(
            label, telling=SUPERVISOR_LABEL
        ).items():
            if not self._lives(supervisor):
                self._engine.remove(container)
                log.info("event=container_swept container=%s", container)

    def _lives(self, supervisor: str) -> bool:
        """By its name in a label."""
        pid, _, rest = supervisor.partition(".")
        found = self._processes.identify(int(pid)) if pid.isdecimal() and rest else None
        return found is not None and supervisor_name(found, self._boot_id) == supervisor

    def _end_as_lost(self, death: _Death) -> None:
        """The holder's own word that nothing of this epoch lives any more: no seal is needed.
        An epoch that nobody holds for us is not ours to end."""
        job_id, epoch = death.job_id, death.epoch
        found = find_job(self._repo, job_id)
        if found is None or found.state is not State.RUNNING or found.record.epoch != epoch:
            return
        holder = found.record.holder
        if holder is None or not self._is_ours(holder):
            return
        beat = self._repo.find_heartbeat(job_id)
        own = beat is not None and beat.value.epoch == epoch
        ending = ending_of_lost(
            self._repo,
            found.record,
            Loss(
                started_at=beat.value.started_at if beat is not None and own else None,
                heard_at=beat.value.last_sign_at if beat is not None and own else None,
                by=self._claimant.consumer,
                reason=Reason.SUPERVISOR_DIED,
                detail="its supervisor died, and what it was running was ended",
                agent_gone=holder.incarnation != self._claimant.incarnation and not death.outlived,
            ),
        )
        give_verdict(self._repo, as_queued_last(self._repo, found.record), ending)
        settle(self._repo, job_id, epoch)

    def _is_ours(self, holder: Holder) -> bool:
        """By the host's name too: the same agent's name on two hosts is a mistake that must not
        end a living job."""
        ours = (self._claimant.consumer, self._claimant.host)
        return (holder.consumer, holder.host) == ours


class SalvageRota:
    """Which workspace is to be salvaged next: each in its turn, and one that cannot be salvaged
    less and less often."""

    def __init__(self) -> None:
        self._next_at: dict[str, float] = {}
        self._rests: dict[str, float] = {}

    def take(self, names: list[str], now: float) -> str | None:
        """None: nothing is due."""
        for gone in self._next_at.keys() - set(names):
            del self._next_at[gone], self._rests[gone]
        due = [name for name in names if self._next_at.get(name, now) <= now]
        if not due:
            return None
        name = min(due, key=lambda name: self._next_at.get(name, float("-inf")))
        rest = min(
            2 * self._rests.get(name, _SALVAGE_AGAIN_SECONDS / 2), _SALVAGE_AGAIN_SECONDS_MAX
        )
        self._rests[name] = rest
        self._next_at[name] = now + rest
        return name
