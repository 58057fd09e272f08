"""One run: everything is set up, hurt for a while, healed, waited for, and judged."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stado.core import keys
from stado.core.states import State
from stado.errors import StoreError
from stado.ports import ProcessIdentity
from stado.settings import Settings
from stado.system.identity import find_process
from tests.chaos import remains
from tests.chaos.checker import Violation, check
from tests.chaos.clients import Clients
from tests.chaos.disks import SmallDisk, small_disk
from tests.chaos.evidence import collect
from tests.chaos.killer import Killer, Stage, StorePower
from tests.chaos.ledger import Ledger
from tests.chaos.members import ChaosFleet, Member, Members, settings_through
from tests.chaos.moved_directory import MovedDirectory
from tests.chaos.plan import Plan
from tests.chaos.processes import HOST_VARIABLE, RUN_VARIABLE, kill_all, marked
from tests.chaos.proxy import FaultyProxy, faulty_proxy
from tests.chaos.store_server import MortalServer
from tests.chaos.summary import Times, summary_lines
from tests.servers import run_seaweedfs

LEASE_SECONDS = 5.0
_CLIENTS_SECONDS_MAX = 600.0
"""From the end of the faults until the last client has its answer: each is a process of its own,
and there are more of them than processors."""

REST_SECONDS_MAX = 300.0
"""From then on until no job is open: what was queued last has to run, and what was
lost last has to be missed for a lease, on a machine that has other things to do."""

TIDY_SECONDS_MAX = 120.0
"""From then on until the hosts are tidy: logs of dead supervisors are looked for each half minute,
and one that could not be saved is tried again after twice as long."""

_TURN_SECONDS = 0.05
_SCAN_SECONDS = 1.0
_START_SECONDS_MAX = 60.0
_SMALL_DISK_MB = 48
_BUCKET = "chaos"
_AGENT_OPTIONS = (
    *("--cpu", "2", "--memory-gb", "4", "--poll-seconds", "0.5"),
    *("--log-limit-mb", "1", "--disk-reserve-gb", "0.004"),
)


@dataclass
class _Scene:
    """What one run consists of."""

    folder: Path
    run: str
    fleet: ChaosFleet
    members: Members
    killer: Killer
    clients: Clients
    proxies: list[FaultyProxy]
    disk: SmallDisk
    ledger: Ledger
    owners: set[ProcessIdentity] = field(default_factory=set)
    """Of control groups: agents and supervisors that were seen."""

    @property
    def hosts(self) -> list[Path]:
        return [
            (member.disk.seen_from_outside if member.disk else self.folder / "hosts") / member.name
            for member in self.members.agents
        ]

    @property
    def logs(self) -> list[Path]:
        return [self.fleet.log_path(member.name) for member in self.members.all]


def run_once(plan: Plan, folder: Path, *, server: bool, say: Callable[[str], None]) -> int:
    """Number of violations. Everything that is needed to look into them is in the folder."""
    (folder / "traces").mkdir()
    (folder / "clocks").mkdir()
    (folder / "plan.json").write_text(json.dumps(asdict(plan), indent=1))
    with ExitStack() as exits:
        scene = exits.enter_context(_scene(plan, folder, server=server))
        began = time.monotonic()
        _repeat(scene, plan.seconds, lambda: False)
        scene.killer.heal()
        healed = time.monotonic()
        _repeat(scene, _CLIENTS_SECONDS_MAX, lambda: scene.clients.done)
        at_rest = _repeat(scene, REST_SECONDS_MAX, lambda: _is_at_rest(scene))
        rested = time.monotonic()
        tidy = at_rest and _repeat(scene, TIDY_SECONDS_MAX, lambda: _is_tidy(scene))
        times = Times(healed - began, rested - healed, time.monotonic() - healed)
        scene.clients.stop()
        violations = [] if at_rest else [_not_at_rest(scene)]
        violations += [] if tidy else [*remains.folders(scene.hosts), *_living(scene)]
        violations += _after_the_end(scene)
        evidence = collect(scene.fleet.repo, folder / "traces", scene.ledger)
        violations += check(evidence)
        violations += [Violation("no_surprise", "run", text) for text in scene.ledger.surprises]
        scene.ledger.write(folder / "ledger.json")
        requests = _requests(scene.proxies)
        lines = list(summary_lines(evidence, scene.ledger, requests, times, violations))
        (folder / "summary.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            say(line)
        if violations and server:
            _copy_bucket(scene, folder / "bucket")
    return len(violations)


# --- setting up -----------------------------------------------------------------------------


@contextmanager
def _scene(plan: Plan, folder: Path, *, server: bool) -> Iterator[_Scene]:
    run = f"{folder.name}-{plan.seed}"
    ledger = Ledger()
    with ExitStack() as exits:
        settings, environment, power = exits.enter_context(_store(folder, server=server))
        exits.callback(kill_all, run)
        fleet = ChaosFleet(
            settings,
            folder,
            lease_seconds=LEASE_SECONDS,
            environment={**environment, RUN_VARIABLE: run},
        )
        exits.callback(fleet.repo.store.close)
        disk = exits.enter_context(small_disk(folder / "hosts", megabytes=_SMALL_DISK_MB))

        def proxy_for(name: str) -> FaultyProxy | None:
            if settings.endpoint is None:
                return None
            draw = random.Random(f"{plan.seed} {name}")
            return exits.enter_context(faulty_proxy(settings.endpoint, draw))

        all_members = [
            Member("one", "agent", _AGENT_OPTIONS, folder / "clocks/one", proxy_for("one")),
            Member("two", "agent", _AGENT_OPTIONS, folder / "clocks/two", proxy_for("two")),
            Member("small", "agent", _AGENT_OPTIONS, folder / "clocks/small", proxy_for("small")),
            Member("left", "coordinator", (), folder / "clocks/left", proxy_for("left")),
            Member("right", "coordinator", (), folder / "clocks/right", proxy_for("right")),
        ]
        all_members[2].disk = disk
        of_clients = proxy_for("clients")
        proxies = [member.proxy for member in all_members if member.proxy is not None]
        proxies += [of_clients] if of_clients is not None else []

        def may_refuse() -> bool:
            return not server and killer.store_was_away_lately

        draw = random.Random(f"{plan.seed} pauses")
        members = Members(fleet, all_members, draw, ledger, may_refuse)
        killer = Killer(Stage(run, members, proxies, disk, power), plan.faults, ledger)
        seen_by_clients = settings_through(settings, of_clients).environment()
        clients = Clients(
            plan,
            ledger,
            folder,
            {**fleet.environment, **seen_by_clients, HOST_VARIABLE: "clients"},
            may_refuse=may_refuse,
        )
        yield _Scene(folder, run, fleet, members, killer, clients, proxies, disk, ledger)


@contextmanager
def _store(folder: Path, *, server: bool) -> Iterator[tuple[Settings, dict[str, str], StorePower]]:
    if not server:
        store = folder / "store"
        yield Settings(store=str(store)), {}, MovedDirectory(store)
        return
    with run_seaweedfs() as found:
        found.make_bucket(_BUCKET)
        os.environ.update(found.environment)  # the judge reads the bucket, too
        power = MortalServer(found)
        settings = Settings(store=f"s3://{_BUCKET}/queue", endpoint=found.endpoint)
        try:
            yield settings, dict(found.environment), power
        finally:
            (folder / "server.log").write_text(power.log)
            power.take_away()


# --- the course -----------------------------------------------------------------------------


def _repeat(scene: _Scene, seconds: float, ended: Callable[[], bool]) -> bool:
    """Turns, until it has ended; False when the time is over before."""
    deadline = time.monotonic() + seconds
    scan_at = 0.0
    while time.monotonic() < deadline:
        scene.killer.turn()
        scene.members.tend()
        scene.clients.turn()
        if time.monotonic() >= scan_at:
            scan_at = time.monotonic() + _SCAN_SECONDS
            scene.owners |= _owners(scene.run)
            if ended():
                return True
        time.sleep(_TURN_SECONDS)
    return False


def _owners(run: str) -> set[ProcessIdentity]:
    found = (find_process(one.pid) for one in marked(run) if one.job_id is None)
    return {status.identity for status in found if status is not None}


def _is_at_rest(scene: _Scene) -> bool:
    """Nothing is under way any more, not even a write that a proxy holds."""
    if not scene.clients.done or any(proxy.late for proxy in scene.proxies):
        return False
    try:
        return not _open_keys(scene)
    except StoreError:
        return False


def _open_keys(scene: _Scene) -> list[str]:
    store = scene.fleet.repo.store
    folders = (keys.READY, keys.prefix(State.QUEUED), keys.prefix(State.RUNNING))
    return [entry.key for folder in folders for entry in store.list(folder)]


def _not_at_rest(scene: _Scene) -> Violation:
    held = sum(proxy.late for proxy in scene.proxies)
    text = f"clients done: {scene.clients.done}, held: {held}, open: {_open_keys(scene)[:20]}"
    return Violation("comes_to_rest", "run", f"not within {REST_SECONDS_MAX:.0f} s: {text}")


def _is_tidy(scene: _Scene) -> bool:
    return not _living(scene) and not remains.folders(scene.hosts)


def _living(scene: _Scene) -> list[Violation]:
    return remains.processes_of_jobs(scene.run)


def _after_the_end(scene: _Scene) -> list[Violation]:
    """What is left when all have gone. What killed supervisors left of control groups the next
    agent of the host removes, so each starts once more."""
    scene.members.stop()
    left = remains.processes(scene.run)
    for member in scene.members.agents:
        scene.members.start(member)
    _wait_for_agents(scene)
    scene.owners |= _owners(scene.run)
    scene.members.stop()
    left += remains.groups(scene.owners)
    left += remains.processes(scene.run)
    return left + list(remains.tracebacks(scene.logs))


def _wait_for_agents(scene: _Scene) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    for member in scene.members.agents:
        while not _has_started(scene, member) and time.monotonic() < deadline:
            time.sleep(_TURN_SECONDS)


def _has_started(scene: _Scene, member: Member) -> bool:
    """In its present life: earlier ones may have been killed before they could say so."""
    assert member.process is not None
    words = scene.fleet.log(member.name)[member.log_began :]
    return not member.alive or "event=agent_started" in words


# --- what is told ---------------------------------------------------------------------------


def _requests(proxies: list[FaultyProxy]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for proxy in proxies:
        counts.update({act.value: count for act, count in proxy.counts.items()})
    return counts


def _copy_bucket(scene: _Scene, folder: Path) -> None:
    """Everything that the bucket holds, a file a key: the server's own files are gone soon."""
    store = scene.fleet.repo.store
    tops = [keys.prefix(state) for state in State]
    tops += [keys.RUNS, keys.READY, keys.CAPACITY, "status/", "control/"]
    for top in tops:
        after = ""
        while page := store.list(top, start_after=after):
            for entry in page:
                path = folder / entry.key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(store.get(entry.key).data)
            after = page[-1].key
