"""The agent: turns a host into a worker. It looks at the queue, lets in what fits, and hands it to
supervisors; it broadcasts what it has and what it runs.

It has one thread, because it forks. It never runs a command itself, and nothing that it does, not
even its death, touches a running job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from stado.core.admission import Offer, Reservation
from stado.core.documents import from_plain
from stado.core.early_failures import EARLY
from stado.core.host_labels import labels_over
from stado.core.liveness import Vigil
from stado.core.order import ReadyEntry, entry_name
from stado.core.quotas import ScopeKind, asks_for_too_much
from stado.core.records import Capacity, Hindrance, JobClaim, JobEnd, JobReport, Record
from stado.core.settings import DeploymentSettings
from stado.core.states import Reason, State, Verdict
from stado.core.yields import Running
from stado.errors import ChannelClosed, EngineFailed, StoreError, Unreadable
from stado.jobs.budgets import is_held
from stado.jobs.capacity import write_capacity
from stado.jobs.claim import Claimant
from stado.jobs.expiry import expire_entry
from stado.jobs.quotas import has_slots
from stado.jobs.repository import Repository
from stado.jobs.upkeep import Upkeep
from stado.jobs.windows import is_open_for
from stado.ports import Channel, Engine, Hardware, Peer, Processes, ProcessIdentity
from stado.storage.port import OpenStore
from stado_agent.accelerator_watch import AcceleratorWatch, cards, reports
from stado_agent.aftermath import Aftermath, SalvageRota
from stado_agent.budget import Budget, Limits
from stado_agent.elsewhere import no_other_stores
from stado_agent.engine_watch import EngineWatch
from stado_agent.evictions import Evictions
from stado_agent.full_scopes import FullScopes
from stado_agent.guidance import Guidance
from stado_agent.held_back import HeldBack
from stado_agent.host import LOG_LIMIT_DEFAULT, Host
from stado_agent.host_health import HostHealth
from stado_agent.idle_use import IdleUse
from stado_agent.input_cache import InputCache, cache_bytes
from stado_agent.log_spool import LogLimit
from stado_agent.making_room import HostNow, RoomMaker, RoomWaits
from stado_agent.orders import Orders
from stado_agent.places import order_of
from stado_agent.quarantine import Quarantine
from stado_agent.rules import Rules
from stado_agent.secrets import Secrets, SecretSettings
from stado_agent.supervisor import serve
from stado_agent.supply import Supply
from stado_agent.this_host import ThisHost, WhatItIs
from stado_agent.workspace import HostFolder, SupervisorNote

log = logging.getLogger(__name__)

_STEP_SECONDS_MAX = 1.0
_IDLE_SUPERVISORS_MAX = 32
_IDLE_SECONDS_MAX = 60.0
_DISPATCH_ROUNDS_MAX = 256
_BEATS_BETWEEN_LOOKS = 4
_REST_SECONDS = 2.0
"""After a supervisor died: what killed it may be the host's own, and kill the next one."""
_HUNG_SECONDS_MIN = 120.0
"""A supervisor that waits for an unreachable store can be silent for a while."""
_NEWS_SHARE = 0.25
"""Of a beat: so soon after the last broadcast others hear of a job that began or ended here."""
_LEFTOVERS_SECONDS = 30.0
"""Between looks for what dead supervisors left."""
_LEFT_TO_OTHERS_SECONDS = 600.0
"""So long a job that could not be started here stands behind all others."""
_FAREWELL_SECONDS = 2.0
"""What a second signal leaves for a last broadcast."""


@dataclass(slots=True)
class _Supervised:
    """A supervisor that we forked, and what it has in hand."""

    peer: Peer
    entry: ReadyEntry | None = None
    cards: tuple[str, ...] = ()
    """That its job was given."""
    missed: bool = False
    """Whether it did not get that job."""
    salvaging: str | None = None
    """Name of a workspace."""
    idle_since: float = 0.0
    handed_at: float = 0.0
    began_at: datetime | None = None
    """When its command was started; None: it has not been."""

    @property
    def idle(self) -> bool:
        return self.entry is None and self.salvaging is None

    @property
    def pid(self) -> int:
        return self.peer.identity.pid

    def take(self, entry: ReadyEntry, cards: tuple[str, ...], now: float) -> None:
        self.entry, self.cards = entry, cards
        self.handed_at, self.began_at = now, None

    def rest(self, now: float) -> None:
        self.entry = self.salvaging = self.began_at = None
        self.missed = False
        self.idle_since = now


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What the owner of the host decides."""

    consumer: str
    poll_seconds: float
    limits: Limits = field(default_factory=Limits)
    log_limit: LogLimit = LOG_LIMIT_DEFAULT
    checkpoint_bytes_per_second: float | None = None
    """Of one job's saves; None: as fast as the store takes them."""
    disk_reserve_bytes: int | None = None
    """What jobs must leave free to be let in; None: 1 GiB, or a twentieth of a small disk."""
    cache_bytes: int | None = None
    """Of what jobs have fetched that is kept for others; None: a tenth of the disk, at most
    20 GiB."""
    secrets: SecretSettings = field(default_factory=SecretSettings)
    """What jobs may ask of this host."""
    max_run_seconds: int | None = None
    """How long a command may run here; None: no limit."""
    what: WhatItIs = field(default_factory=WhatItIs)
    room_waits: RoomWaits = field(default_factory=RoomWaits)
    accelerators: bool = True
    """Whether its host's accelerators are looked at, and for jobs."""
    version: str = ""


@dataclass(frozen=True, slots=True)
class HostPorts:
    """The host, as an agent uses it."""

    folder: HostFolder
    processes: Processes
    hardware: Hardware
    environment: Mapping[str, str]
    open_store: OpenStore = no_other_stores
    """For objects that jobs take along, and copies that they want elsewhere."""
    engine: Engine | None = None
    """For jobs that run in images; None: they are left to other hosts."""


class LeaveAtOnce(BaseException):
    """Raised out of whatever the agent is waiting for, by a signal's handler."""


class Agent:
    """One agent. `supervisor_repo` is a repository whose store has never been used: each
    supervisor gets it by the fork, with connections of its own. `take_throttled` tells how many
    requests the store has put off since it was last called; `turned` is called by the main loop,
    each time that it has gone round."""

    def __init__(
        self,
        repo: Repository,
        supervisor_repo: Repository,
        *,
        settings: AgentSettings,
        host: HostPorts,
        take_throttled: Callable[[], int] = lambda: 0,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        self._repo = repo
        self._turned = turned
        self._supervisor_repo = supervisor_repo
        self._settings = settings
        self._folder = host.folder
        self._processes = host.processes
        self._environment = host.environment
        self._open_store = host.open_store
        self._cache_bytes = cache_bytes(settings.cache_bytes, host.hardware, host.folder.root)
        self._input_cache = InputCache(
            host.folder.inputs,
            limit_bytes=self._cache_bytes,
            clock=repo.clock,
            entropy=repo.entropy,
        )
        self._take_throttled = take_throttled
        self._health = HostHealth(
            repo.clock,
            host.hardware,
            host.folder.root,
            now=repo.now,
            disk_reserve_bytes=settings.disk_reserve_bytes,
            make_room=self._input_cache.clear,
        )
        self._accelerators = AcceleratorWatch(
            repo.clock,
            host.hardware,
            host.processes,
            host.folder,
            boot_id=host.hardware.boot_id(),
            enabled=settings.accelerators,
        )
        self._budget = Budget(
            host.hardware,
            settings.limits,
            cards=lambda: cards(self._accelerators.latest()),
            disk=self._health.disk_left,
            idle_use=IdleUse(host.folder, host.hardware.boot_id()),
        )
        self._rules = Rules(repo, now=repo.now)
        self._orders = Orders(repo, settings.consumer, now=repo.now)
        self._quarantine = Quarantine(repo, settings.consumer, host.folder)
        self._evictions = Evictions(repo)
        self._last_claim: JobClaim | None = None
        self._full_scopes = FullScopes(repo)
        self._held_back = HeldBack(repo, self._rules)
        self._containment = host.processes.containment()
        self._boot_id = host.hardware.boot_id()
        self._on_trial: _Supervised | None = None
        self._salvage_rota = SalvageRota()
        self._look_for_leftovers_at = float("-inf")
        self._others_until: dict[str, float] = {}
        self._claimant = Claimant(
            consumer=settings.consumer,
            incarnation=repo.entropy.token(),
            host=host.hardware.host_name(),
        )
        self._guidance = Guidance(
            repo, consumer=settings.consumer, incarnation=self._claimant.incarnation
        )
        self._supply = Supply(repo, self._guidance, poll_seconds=settings.poll_seconds)
        self._engine = host.engine
        self._engine_watch = EngineWatch(repo.clock, host.engine)
        self._has_swept = False
        self._this_host = ThisHost(
            settings.consumer,
            settings.what,
            self._budget,
            labels=self._labels,
            runs_images=lambda: self._engine_watch.name() is not None,
            full_groups=lambda: self._full_scopes.groups | self._held_back.groups,
            price_per_hour=self._price_per_hour,
        )
        self._aftermath = Aftermath(
            repo,
            self._processes,
            self._folder,
            self._claimant,
            engine=host.engine,
            boot_id=self._boot_id,
        )
        self._room = RoomMaker(
            repo,
            consumer=settings.consumer,
            incarnation=self._claimant.incarnation,
            is_for_us=self._is_for_us,
            waits=settings.room_waits,
        )
        self._make_room_at = float("-inf")
        self._supervised: list[_Supervised] = []
        self._inherited: list[SupervisorNote] = []
        self._broadcast_at = float("-inf")
        self._broadcasts = 0
        self._has_news = False
        self._told_of_hindrance = False
        self._unwell = False
        self._draining = False
        self._full = False
        self._signs = Vigil()
        self._upkeep = Upkeep(repo, by=settings.consumer)

    # --- life ---------------------------------------------------------------------------

    def drain(self) -> None:
        """Claim nothing more; `run` returns when all that runs here has ended."""
        if not self._draining:
            self._draining = True
            self._broadcast_at = float("-inf")
            log.info(
                "event=draining jobs=%d hint='a second signal leaves them to their supervisors'",
                len(self._reserved()),
            )

    def run(self, drain_asked: Callable[[], bool]) -> None:
        """Works until it has drained, or `LeaveAtOnce` is raised in it. Supervisors go on without
        it."""
        try:
            self._work(drain_asked)
        except LeaveAtOnce:
            self._leave_at_once()

    def _work(self, drain_asked: Callable[[], bool]) -> None:
        self.take_back()
        log.info(
            "event=agent_started consumer=%s cpu=%g memory_gb=%.1f contains_by=%s "
            "limits_memory_by=%s runs_images_by=%r",
            self._settings.consumer,
            self._budget.cpu_total,
            self._budget.memory_total_mib / 1024,
            self._containment.contains_by,
            self._containment.limits_memory_by,
            self._engine_watch.name(),
        )
        while not (self._draining and not self._busy):
            self.step()
            self._turned()
            if drain_asked():
                self.drain()
        self._dismiss([one for one in self._supervised if one.entry is None])
        self._say_farewell()

    def _leave_at_once(self) -> None:
        """Whatever was being done: a store that does not answer keeps nobody here."""
        log.info("event=leaving_at_once jobs=%d", len(self._reserved()))
        farewell = self._repo.tasks.start("farewell", self._say_farewell)
        with suppress(LeaveAtOnce):
            farewell.join(_FAREWELL_SECONDS)

    def step(self) -> None:
        """One turn of the loop: at most a second, and what the store takes."""
        try:
            self._listen()
            self._broadcast_when_due()
            if not self._draining:
                self._rules.refresh_when_due()
                self._guidance.refresh_when_due()
                self._dispatch()
                self._make_room_when_due()
                self._end_overdue()
                self._salvage_when_due()
            else:
                self._room.give_up()
            self._upkeep.turn_when_due()
        except (StoreError, Unreadable, OSError) as error:
            self._note_unwell(error)
        else:
            self._unwell = False
        self._retire_idle()

    @property
    def _busy(self) -> bool:
        """Whether something runs here, or lives that should not."""
        left = bool(self._inherited or self._aftermath.job_ids)
        return left or any(one.entry is not None for one in self._supervised)

    def _note_unwell(self, error: Exception) -> None:
        """One line an outage, of the store or of this host. What runs goes on; what waits,
        waits."""
        if not self._unwell:
            log.warning("event=trouble error=%r", str(error))
        self._unwell = True
        self._repo.clock.sleep(self._repo.entropy.uniform(0.5, 1.5))

    # --- supervisors --------------------------------------------------------------------

    def _listen(self) -> None:
        """Hears the supervisors, waiting until there is something to do."""
        wait = _STEP_SECONDS_MAX
        if not (self._full or self._draining):
            wait = min(wait, self._supply.seconds_to_wait())
        peers = [one.peer for one in self._supervised]
        ready = {peer.identity for peer in self._processes.wait(peers, wait)}
        for one in [one for one in self._supervised if one.peer.identity in ready]:
            self._hear(one)
        for note in [note for note in self._inherited if self._has_ended(note.supervisor)]:
            self._inherited.remove(note)
            self._note_death(note, outlived=True)
        if self._aftermath.turn():
            self._look_for_leftovers_at = float("-inf")
            self._supply.hurry()

    def _has_ended(self, supervisor: ProcessIdentity) -> bool:
        return not self._processes.alive(supervisor)

    def _hear(self, one: _Supervised) -> None:
        try:
            while (message := one.peer.channel.receive(0)) is not None:
                self._heed(one, message)
        except ChannelClosed:
            self._supervised.remove(one)
            if self._on_trial is one:
                self._on_trial = None
            exit_code = one.peer.poll()
            one.peer.channel.close()
            if one.idle:
                return
            log.error(
                "event=supervisor_died pid=%d exit_code=%s job=%s",
                one.pid,
                exit_code,
                one.salvaging if one.entry is None else one.entry.job_id,
            )
            self._supply.rest(_REST_SECONDS)
            if one.entry is not None:
                self._aftermath.begin(
                    one.peer.identity,
                    job_id=one.entry.job_id,
                    epoch=one.entry.epoch,
                    held=Reservation(one.entry.needs, one.cards),
                )
                self._note_end(self._end_of_dead(one, one.entry))

    def _heed(self, one: _Supervised, message: Mapping[str, object]) -> None:
        event = message.get("event")
        if self._on_trial is one and event != "claimed":
            self._on_trial = None
        if event == "missed":
            one.missed = True
            self._supply.missed(one.entry)
        elif event == "claimed" and one.entry is not None:
            self._last_claim = JobClaim(job_id=one.entry.job_id, at=self._repo.now())
            self._held_back.note_claimed(one.entry)
        elif event in ("full", "closed"):
            one.missed = True
            self._note_held_up(one.entry, message)
        elif event == "started":
            one.began_at = one.began_at or self._repo.now()
            self._health.note_started()
        elif event == "ended":
            self._note_end(from_plain(JobEnd, message["end"]))
        elif event == "unable":
            self._note_unable(one.entry, str(message.get("why")))
        elif event == "idle":
            if one.entry is not None and not one.missed:
                self._full_scopes.note_end()
            one.rest(self._repo.clock.monotonic())
            self._has_news = True
            self._supply.hurry()
            self._accelerators.look_again()

    def _note_held_up(self, entry: ReadyEntry | None, message: Mapping[str, object]) -> None:
        """An entry whose name had no room for what would show it is tried less and less often."""
        noted = self._full_scopes if message["event"] == "full" else self._held_back
        noted.note(ScopeKind(str(message["kind"])), str(message["subject"]), entry)
        if entry is not None and entry.needs.group is None and not self._is_held_up(entry):
            self._supply.missed(entry)

    def _note_unable(self, entry: ReadyEntry | None, why: str) -> None:
        """An engine that has gone is in nobody's way but that of jobs that run in images, of which
        none is taken until it answers."""
        self._broadcast_at = float("-inf")
        if entry is not None:
            if entry.needs.image and self._engine_watch.look_again() is None:
                return
            self._leave_to_others(entry.job_id)
        self._health.note_unable(why)

    def _note_end(self, end: JobEnd) -> None:
        """Others are looked at as soon as a row of failures makes this host suspect."""
        was_suspect = self._quarantine.suspect
        self._quarantine.note_end(end)
        self._has_news = True
        if self._quarantine.suspect and not was_suspect:
            self._broadcast_at = float("-inf")

    def _end_of_dead(self, one: _Supervised, entry: ReadyEntry) -> JobEnd:
        """Of a job whose supervisor died: who submitted it is not known here."""
        now, began_at = self._repo.now(), one.began_at
        early = self._repo.clock.monotonic() - one.handed_at < EARLY.total_seconds()
        lasted = (now - (began_at or now)).total_seconds()
        return JobEnd(
            job_id=entry.job_id,
            verdict=Verdict.LOST,
            reason=Reason.SUPERVISOR_DIED,
            ran_seconds=None if early else max(0.0, lasted),
            at=now,
        )

    def take_back(self) -> None:
        """What an earlier agent of this name left on this host: living supervisors are counted,
        dead ones looked after. One that hung when we began may take up its last order later, so
        that this is looked at again and again."""
        inherited = {note.supervisor for note in self._inherited}
        known = self._aftermath.supervisors | inherited
        own = {one.pid for one in self._supervised}
        for note in list(self._folder.notes()):
            if note.supervisor in known or note.supervisor.pid in own:
                continue
            if self._is_of_this_boot(note) and self._processes.alive(note.supervisor):
                log.info("event=taken_back job=%s epoch=%d", note.job_id, note.epoch)
                self._inherited.append(note)
            else:
                self._note_death(note)
        self._aftermath.turn()

    def _note_death(self, note: SupervisorNote, *, outlived: bool = False) -> None:
        self._aftermath.begin(
            note.supervisor,
            job_id=note.job_id,
            epoch=note.epoch,
            held=Reservation(note.needs, note.cards),
            of_this_boot=self._is_of_this_boot(note),
            outlived=outlived,
        )

    def _is_of_this_boot(self, note: SupervisorNote) -> bool:
        return note.boot_id in (None, self._boot_id)

    def _salvage_when_due(self) -> None:
        """What dead supervisors left, one workspace at a time, by a supervisor of its own: it may
        take a while, and the store may be away."""
        now = self._repo.clock.monotonic()
        if now < self._look_for_leftovers_at or any(one.salvaging for one in self._supervised):
            return
        left = [found.root.name for found in self._folder.leftover_workspaces()]
        name = self._salvage_rota.take(left, now)
        if name is None:
            self._look_for_leftovers_at = now + _LEFTOVERS_SECONDS
            return
        one = self._idle_or_forked()
        one.salvaging = name
        self._send(one, {"do": "salvage", "workspace": name})

    # --- letting jobs in ----------------------------------------------------------------

    def _reserved(self) -> list[Reservation]:
        return [held for _, held in self._held()]

    def _held(self) -> list[tuple[str | None, Reservation]]:
        """What is given away, by the id of the job that may still be put back."""
        own = [
            (one.entry.job_id, Reservation(one.entry.needs, one.cards))
            for one in self._supervised
            if one.entry is not None
        ]
        inherited = [(note.job_id, Reservation(note.needs, note.cards)) for note in self._inherited]
        return [*own, *inherited, *((None, held) for held in self._aftermath.reserved)]

    def _dispatch(self) -> None:
        hindrance = self._hindrance()
        self._has_news |= (hindrance is not None) != self._told_of_hindrance
        if hindrance is not None or self._on_trial is not None:
            self._full = True
            return
        starts_left = self._quarantine.starts_left(self._young())
        in_hand = self._jobs_in_hand()
        for begun in range(_DISPATCH_ROUNDS_MAX):
            if begun == starts_left:
                self._full = True
                return
            offer = self._offer()
            self._full = offer.spent or self._takes_nothing
            if self._full:
                break
            entry = self._next_entry(in_hand, offer)
            if entry is None:
                break
            in_hand.add(entry.job_id)
            self._full_scopes.note_tried(entry)
            self._held_back.note_tried(entry)
            one = self._idle_or_forked()
            left = self._room.open_to(entry, offer, in_hand)
            place = self._this_host.place_for(entry.needs, left)
            one.take(entry, place.cards, self._repo.clock.monotonic())
            trial = self._health.on_probation
            order = {
                "do": "run",
                "entry": entry.name,
                "rules": self._allowed(),
                "holds": [hold.plain() for hold in self._held_back.holds],
                "place": order_of(place),
            }
            if not self._send(one, order):
                self._supply.rest(_REST_SECONDS)
                return
            self._has_news = True
            if trial:
                self._on_trial = one
                return

    def _next_entry(self, in_hand: set[str], offer: Offer) -> ReadyEntry | None:
        kept_from = self._room.kept_from(offer, in_hand)

        def is_passed_over(entry: ReadyEntry) -> bool:
            return entry.job_id in in_hand or self._is_held_up(entry) or kept_from(entry)

        return self._supply.next_fitting(offer, skip=is_passed_over)

    @property
    def _takes_nothing(self) -> bool:
        """By what the deployment says of all jobs."""
        return self._full_scopes.everything or self._held_back.everything

    def _is_held_up(self, entry: ReadyEntry) -> bool:
        """By what the deployment says of jobs like this one, as its name shows it. (What it says of
        groups is in what this host offers.)"""
        settings = self._rules.settings
        return (
            self._full_scopes.holds_up(entry)
            or self._held_back.holds_up(entry)
            or (settings is not None and asks_for_too_much(entry.needs, settings))
        )

    def _make_room_when_due(self) -> None:
        """Each beat while something runs here, and each fourth where nothing of it may yield:
        whoever finds no room beside it may get some."""
        now = self._repo.clock.monotonic()
        if self._hindrance() is not None or self._takes_nothing:
            self._room.give_up()
            return
        if now < self._make_room_at:
            return
        running = self._running()
        hurry = self._room.kept_for is not None or any(one.yields_left for one in running)
        beats = 1 if hurry else _BEATS_BETWEEN_LOOKS
        self._make_room_at = now + beats * self._repo.deployment.tick_seconds
        if not running and self._room.kept_for is None:
            return
        in_hand = self._jobs_in_hand()
        waiting = self._supply.waiting(
            skip=lambda one: one.job_id in in_hand or self._is_held_up(one)
        )
        self._room.turn(waiting, self._host_now(running))

    def _host_now(self, running: Sequence[Running]) -> HostNow:
        held, reserved = self._held(), self._reserved()
        over = self._over_unheard({one.job_id for one in running})

        def without(gone: Sequence[Running]) -> Offer:
            ids = over | {one.job_id for one in gone}
            left = [one for job_id, one in held if job_id not in ids]
            return self._this_host.beside(left, of=reserved)

        return HostNow(
            left=self._offer(),
            whole=self._this_host.beside([], of=reserved),
            running=running,
            without=without,
        )

    def _over_unheard(self, noted: set[str]) -> set[str]:
        """Jobs whose supervisors have taken their notes back, and have yet to be heard: what they
        held is free in a moment, and no other job has to go for it."""
        return {
            one.entry.job_id
            for one in self._supervised
            if one.entry is not None and one.began_at is not None and one.entry.job_id not in noted
        }

    def _is_for_us(self, entry: ReadyEntry) -> bool:
        """Whether nothing but room keeps a queued job from this host. A read, and a listing for
        each limit that it falls under."""
        queued = self._repo.find_record(State.QUEUED, entry.job_id)
        if queued is None or entry_name(queued.value) != entry.name:
            return False
        place = self._this_host.place_for(entry.needs, self._offer())
        settings = self._rules.settings or DeploymentSettings()
        if not place.is_for(queued.value.spec) or self._has_to_wait(queued.value, settings):
            return False
        return has_slots(self._repo, queued.value, settings)

    def _has_to_wait(self, record: Record, settings: DeploymentSettings) -> bool:
        """For a window, or until a budget begins anew."""
        is_open = is_open_for(self._repo, record, settings)
        return not is_open or is_held(self._repo, record, self._held_back.holds)

    def _running(self) -> list[Running]:
        """Jobs that supervisors have here, with what it would cost to put them back."""
        now = self._repo.clock.now().timestamp()
        return [
            Running(
                job_id=note.job_id,
                epoch=note.epoch,
                priority=note.priority,
                held=Reservation(note.needs, note.cards),
                yields_left=note.yields_left,
                lost_seconds=max(0.0, now - note.work_since),
            )
            for note in self._folder.notes()
        ]

    def _offer(self) -> Offer:
        images = self._engine_watch.name() is not None
        if images and not self._has_swept:
            self._sweep_containers()
        self._has_swept = images
        return self._this_host.offer(self._reserved())

    def _sweep_containers(self) -> None:
        """As soon as the engine answers, and answers again: what it did not remove meanwhile is
        still there."""
        try:
            self._aftermath.sweep_containers()
        except EngineFailed as error:
            log.warning("event=containers_not_swept error=%r", error.strerror)

    def _hindrance(self) -> Hindrance | None:
        """What operators say goes before what the host finds itself."""
        ordered = self._orders.hindrance(busy=self._busy)
        found = self._rules.hindrance or ordered or self._quarantine.hindrance()
        return found or self._health.hindrance()

    def _young(self) -> int:
        """Jobs that were handed over so lately that they may still fail at once."""
        since = self._repo.clock.monotonic() - EARLY.total_seconds()
        return sum(one.entry is not None and one.handed_at > since for one in self._supervised)

    def _look_around(self) -> None:
        """For what operators say, and, while suspect, for how others fare."""
        self._orders.look()
        orders = self._orders.orders
        if orders is not None and orders.release is not None:
            self._quarantine.release(orders.release.at)
        self._quarantine.note_running(one.began_at for one in self._supervised if one.began_at)
        self._quarantine.look()
        overdue = self._orders.overdue
        if overdue is not None:
            self._evictions.turn(overdue, self._folder.notes())

    def _allowed(self) -> dict[str, Any]:
        """What the deployment says, for the job that is claimed now."""
        return (self._rules.settings or DeploymentSettings()).plain()

    def _end_overdue(self) -> None:
        """Jobs in the queue whose time is up: nobody starts them any more."""
        for entry in self._supply.take_over():
            try:
                expire_entry(self._repo, entry, by=self._settings.consumer)
            except Unreadable as error:
                self._repo.tell_unreadable(error)

    def _jobs_in_hand(self) -> set[str]:
        """Of supervisors of this host. Whatever epoch of such a job is queued meanwhile: the one
        that has it adopts it, and here nobody else takes it from under its hands."""
        own = {one.entry.job_id for one in self._supervised if one.entry is not None}
        inherited = {note.job_id for note in self._inherited}
        return own | inherited | self._aftermath.job_ids | self._left_to_others()

    def _leave_to_others(self, job_id: str) -> None:
        """It could not be started here, and that may be its own fault: others are tried first."""
        now = self._repo.clock.monotonic()
        self._others_until[job_id] = now + _LEFT_TO_OTHERS_SECONDS

    def _left_to_others(self) -> set[str]:
        now = self._repo.clock.monotonic()
        self._others_until = {j: at for j, at in self._others_until.items() if at > now}
        return set(self._others_until)

    def _idle_or_forked(self) -> _Supervised:
        idle = [one for one in self._supervised if one.idle]
        return idle[-1] if idle else self._fork()

    def _send(self, one: _Supervised, message: Mapping[str, object]) -> bool:
        """Whether it went: one that is gone already is dismissed."""
        try:
            one.peer.channel.send(message)
        except ChannelClosed:
            one.rest(self._repo.clock.monotonic())
            self._dismiss([one])
            return False
        return True

    def _fork(self) -> _Supervised:
        repo, folder, processes = self._supervisor_repo, self._folder, self._processes
        claimant, environment = self._claimant, self._environment
        boot_id, settings = self._boot_id, self._settings
        kept_bytes, engine = self._cache_bytes, self._engine
        open_store = self._open_store

        def main(channel: Channel) -> None:
            host = Host(
                processes,
                folder,
                claimant,
                environment,
                processes.own_identity(),
                boot_id=boot_id,
                log_limit=settings.log_limit,
                cache_bytes=kept_bytes,
                open_store=open_store,
                checkpoint_bytes_per_second=settings.checkpoint_bytes_per_second,
                secrets=Secrets(settings.secrets),
                engine=engine,
                max_run_seconds=settings.max_run_seconds,
            )
            serve(channel, repo, host)

        one = _Supervised(self._processes.fork(main))
        self._supervised.append(one)
        return one

    def _retire_idle(self) -> None:
        now = self._repo.clock.monotonic()
        idle = [one for one in self._supervised if one.idle]
        surplus = idle[:-_IDLE_SUPERVISORS_MAX] if len(idle) > _IDLE_SUPERVISORS_MAX else []
        old = [one for one in idle if now - one.idle_since > _IDLE_SECONDS_MAX]
        self._dismiss([one for one in idle if one in surplus or one in old])

    def _dismiss(self, idle: list[_Supervised]) -> None:
        for one in idle:
            self._supervised.remove(one)
            one.peer.channel.close()
            one.peer.poll()

    # --- what others see ----------------------------------------------------------------

    def _broadcast_when_due(self) -> None:
        """Each beat, and sooner when something has changed: others go by what we said last."""
        now = self._repo.clock.monotonic()
        beat = self._repo.deployment.tick_seconds
        if now - self._broadcast_at >= (beat * _NEWS_SHARE if self._has_news else beat):
            self._broadcast_at = now
            self._has_news = False
            self.take_back()
            self._end_hung()
            self._look_around()
            self._broadcast(stopped=False)

    def _broadcast(self, *, stopped: bool) -> None:
        self._broadcasts += 1
        uses = [] if stopped else self._accelerators.sample()
        offer = self._budget.offer(self._reserved())
        hindrance = None if self._draining else self._hindrance()
        self._told_of_hindrance = hindrance is not None
        capacity = Capacity(
            consumer=self._settings.consumer,
            incarnation=self._claimant.incarnation,
            host=self._claimant.host,
            at=self._repo.now(),
            host_at=self._repo.clock.now(),
            counter=self._broadcasts,
            broadcast_seconds=self._repo.deployment.tick_seconds,
            cpu_total=self._budget.cpu_total,
            cpu_free=offer.cpu_milli / 1000,
            memory_total_gb=self._budget.memory_total_mib / 1024,
            memory_free_gb=offer.memory_mib / 1024,
            disk_free_gb=self._health.disk_free_gb(),
            disk_left_gb=(offer.disk_mib or 0) / 1024,
            machine_type=self._settings.what.machine_type,
            provider=self._settings.what.provider,
            spot=self._settings.what.spot,
            price_per_hour=self._price_per_hour(),
            closed=offer.closed,
            disk_total_gb=self._health.disk_total_gb(),
            disk_reserve_gb=self._health.disk_reserve_gb(),
            accelerators=reports(uses, offer.cards),
            accelerators_unknown=self._accelerators.unknown,
            jobs=self._reports(),
            draining=self._draining,
            stopped=stopped,
            version=self._settings.version,
            hindrance=hindrance,
            contains_by=self._containment.contains_by,
            limits_memory_by=self._containment.limits_memory_by,
            runs_images_by=None if stopped else self._engine_watch.name(),
            max_run_seconds=self._settings.max_run_seconds,
            keeps_room_for=self._room.kept_for,
            throttled=self._take_throttled(),
            labels=self._labels(),
            last_claim=self._last_claim,
            recent_ends=self._quarantine.recent_ends,
        )
        write_capacity(self._repo, capacity)

    def _price_per_hour(self) -> float | None:
        """What operators say goes before what the agent was started with."""
        said = self._orders.orders.price_per_hour if self._orders.orders is not None else None
        return self._settings.what.price_per_hour if said is None else said

    def _labels(self) -> list[str]:
        """What operators say goes before what the agent was started with."""
        said = self._orders.orders.labels if self._orders.orders is not None else {}
        return labels_over(self._settings.what.labels, said)

    def _reports(self) -> list[JobReport]:
        """Of each job: the signs that its supervisor gave on this host, store or no store."""
        began_at = {one.pid: one.began_at for one in self._supervised}
        return [
            JobReport(
                job_id=note.job_id,
                epoch=note.epoch,
                signs=self._folder.signs(note.supervisor.pid),
                began_at=began_at.get(note.supervisor.pid),
            )
            for note in self._folder.notes()
        ]

    def _end_hung(self) -> None:
        """A supervisor that gives no sign on its own host, for long, is as good as dead."""
        now = self._repo.clock.monotonic()
        limit = max(2 * self._repo.deployment.lease_seconds, _HUNG_SECONDS_MIN)
        for one in self._supervised:
            if one.entry is None:
                self._signs.restart(str(one.pid))
            elif self._silence(one.pid, now) > limit:
                log.error("event=supervisor_hung pid=%d job=%s", one.pid, one.entry.job_id)
                one.peer.kill()
        for note in self._inherited:
            pid = note.supervisor.pid
            if self._silence(pid, now) > limit:
                log.error("event=supervisor_hung pid=%d job=%s", pid, note.job_id)
                self._processes.kill_session(note.supervisor)

    def _silence(self, pid: int, now: float) -> float:
        """Seconds without a sign of a supervisor, as far as we have watched it."""
        return self._signs.look(str(pid), self._folder.signs(pid), now)

    def _say_farewell(self) -> None:
        self._draining = True
        try:
            self._broadcast(stopped=True)
        except StoreError as error:
            log.warning("event=farewell_failed error=%r", str(error))
        log.info("event=agent_stopped consumer=%s", self._settings.consumer)
