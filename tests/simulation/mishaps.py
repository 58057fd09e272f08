"""What happens to hosts and processes besides lost requests: operators, power, networks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.process import SimHost, SimProcess
from tests.simulation.programs import Service, run_tick

if TYPE_CHECKING:
    from tests.simulation.world import World


class Mishaps:
    """Draws what happens, when, and to whom; until `stop`, which also ends what lasts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernel = world.kernel
        self.counts: dict[str, int] = {}
        self._stopped = False
        kinds: list[tuple[float, Callable[[], str | None]]] = [
            (3, self._kill_process),
            (2, self._kill_command),
            (4, self._freeze_process),
            (1, self._freeze_host),
            (2, self._terminate),
            (1, self._terminate_twice),
            (1, self._reboot),
            (0.5, self._lose_disk),
            (0.3, self._lose_host),
            (6, self._cut_off),
            (1, self._cut_off_all),
            (1, self._step_clock),
            (1, self._fill_disk),
            (1, self._tick_from_cron),
            (2, self._sicken_card),
        ]
        for _ in range(world.plan.mishaps):
            kind = self._kernel.random.choices(
                [kind for _, kind in kinds], weights=[weight for weight, _ in kinds]
            )[0]
            moment = self._kernel.random.uniform(0, world.plan.safety)
            self._kernel.after(moment, partial(self._do, kind))

        for _ in range(world.plan.outages):
            moment = self._kernel.random.uniform(0, world.plan.safety)
            self._kernel.after(moment, partial(self._do, self._long_outage))

    def stop(self) -> None:
        self._stopped = True
        for host in self._world.all_hosts:
            host.cut_off = host.disk_full = False
            for card in list(host.ailing):
                host.get_well(card)
            for process in list(host.processes.values()):
                process.thaw()
            host.thaw()
            self._start(host)

    def _do(self, kind: Callable[[], str | None]) -> None:
        if self._stopped:
            return
        text = kind()
        if text is not None:
            name = kind.__name__.strip("_")
            self.counts[name] = self.counts.get(name, 0) + 1
            self._world.trace.note("mishap", f"{name}: {text}")

    # --- what happens -------------------------------------------------------------------

    def _kill_process(self) -> str | None:
        process = self._some_process()
        if process is None:
            return None
        process.kill()
        return f"{process.name} {process.identity.pid} on {process.host.name}"

    def _kill_command(self) -> str | None:
        commands = [command for host in self._world.hosts for command in host.commands]
        if not commands:
            return None
        command = self._kernel.random.choice(commands)
        command.die(-9)
        return f"{command.job_id} on {command.host.name}"

    def _freeze_process(self) -> str | None:
        process = self._some_process()
        if process is None:
            return None
        process.freeze()
        self._later(process.thaw)
        return f"{process.name} {process.identity.pid} on {process.host.name}"

    def _freeze_host(self) -> str:
        host = self._some_host()
        host.freeze()
        self._later(host.thaw)
        return host.name

    def _terminate(self) -> str:
        service = self._some_service()
        service.terminate()
        return f"{service.name} on {service.host.name}"

    def _terminate_twice(self) -> str:
        service = self._some_service()
        service.terminate()
        self._later(service.terminate)
        return f"{service.name} on {service.host.name}"

    def _reboot(self) -> str:
        host = self._some_host()
        host.go_down()
        self._later(lambda: self._start(host))
        return host.name

    def _lose_disk(self) -> str:
        host = self._some_host()
        host.go_down()
        shutil.rmtree(host.folder)
        host.folder.mkdir()
        self._later(lambda: self._start(host))
        return host.name

    def _lose_host(self) -> str | None:
        """For ever; one stays."""
        if sum(not host.vanished for host in self._world.hosts) < 2:
            return None
        host = self._some_host()
        host.vanished = True
        host.go_down()
        return host.name

    def _cut_off(self) -> str:
        host = self._some_host(among=self._world.all_hosts)
        return self._cut(host)

    def _long_outage(self) -> str:
        """Longer than a lease, and over before all of its jobs have ended."""
        host = self._some_host()
        host.cut_off = True
        seconds = self._kernel.random.uniform(1.2, 3.0) * self._world.plan.lease
        self._kernel.after(seconds, partial(self._join, host))
        return host.name

    def _cut_off_all(self) -> str:
        return ", ".join(self._cut(host) for host in self._world.all_hosts)

    def _cut(self, host: SimHost) -> str:
        host.cut_off = True
        self._later(lambda: self._join(host))
        return host.name

    @staticmethod
    def _join(host: SimHost) -> None:
        host.cut_off = False

    def _step_clock(self) -> str:
        host = self._some_host()
        host.skew_seconds += self._kernel.random.choice((-7200.0, -60.0, -2.0, 2.0, 60.0, 7200.0))
        return f"{host.name} to {host.skew_seconds:+.0f} s"

    def _fill_disk(self) -> str:
        host = self._some_host()
        host.disk_full = True
        self._later(lambda: self._make_room(host))
        return host.name

    @staticmethod
    def _make_room(host: SimHost) -> None:
        host.disk_full = False

    def _sicken_card(self) -> str | None:
        """What runs on it goes on."""
        host = self._some_host()
        if not host.plan.cards:
            return None
        card = self._kernel.random.choice(host.plan.cards)
        host.fall_ill(card.uuid)
        self._later(partial(host.get_well, card.uuid))
        return f"{card.uuid} of {host.name}"

    def _tick_from_cron(self) -> str:
        host = self._kernel.random.choice(self._world.laptops)
        run_tick(self._world, host)
        return host.name

    # --- to whom, and for how long ------------------------------------------------------

    def _later(self, happening: Callable[[], None]) -> None:
        lease = self._world.plan.lease
        seconds = self._kernel.random.choice((1.0, lease / 2, 2 * lease, 5 * lease))
        self._kernel.after(self._kernel.random.uniform(seconds / 2, seconds), happening)

    def _start(self, host: SimHost) -> None:
        if host.vanished or host.up:
            return
        host.come_up()
        for service in self._world.services:
            if service.host is host:
                service.start()

    def _some_process(self) -> SimProcess | None:
        processes = [p for host in self._world.all_hosts for p in host.processes.values()]
        return self._kernel.random.choice(processes) if processes else None

    def _some_host(self, among: list[SimHost] | None = None) -> SimHost:
        hosts = [host for host in among or self._world.hosts if not host.vanished]
        return self._kernel.random.choice(hosts)

    def _some_service(self) -> Service:
        return self._kernel.random.choice(self._world.services)
