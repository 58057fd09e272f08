"""Installing a service and removing it: what would be done, and doing it.

A crash on the way leaves files that the same call completes: the unit comes last, and is only then
made known to systemd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stado.errors import Refused
from stado.services.environment_file import merged
from stado.services.files import SECRET_MODE, WantedFile, wanted_unit, wanted_variables
from stado.services.port import Host, Manager, UnitState
from stado.services.service import ACCOUNT_DEFAULT, ACCOUNT_HOME, Scope, Service
from stado.services.unit import unit_text

NEWEST_KNOWN = 257
"""Version of systemd that is written for where none is asked."""


_CLOCK_SECONDS = 2.0
"""systemd tells when a process was started to a second."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a host lacks of a service."""

    service: Service
    account: str | None
    """That has to be made."""
    files: tuple[WantedFile, ...]

    @property
    def unit(self) -> WantedFile:
        return self.files[-1]

    @property
    def differs(self) -> bool:
        return self.account is not None or any(file.differs for file in self.files)

    def commands(self, host: Host, *, start: bool) -> list[str]:
        """What is called, as people would type it."""
        scope = " --user" if self.service.scope is Scope.USER else ""
        unit = self.service.unit
        called = (
            [] if self.account is None else [host.account_argv(self.account, home=ACCOUNT_HOME)]
        )
        called += [f"systemctl{scope} daemon-reload", f"systemctl{scope} enable {unit}"]
        return [*called, *([f"systemctl{scope} restart {unit}"] if start else [])]


@dataclass(frozen=True, slots=True)
class Done:
    """What an installation has changed."""

    files: tuple[WantedFile, ...]
    enabled: bool
    started: bool
    """Anew, where it ran already."""
    narrowed: bool
    """Whether others could read the file of variables, until now."""
    caught_up: bool
    """Whether systemd, or the process, had yet to take up what was written before."""
    before: UnitState
    """What systemd said of it before it was started."""

    @property
    def anything(self) -> bool:
        changed = bool(self.files) or self.enabled or self.started
        return changed or self.narrowed or self.caught_up


def plan(
    service: Service, variables: Mapping[str, str], host: Host, *, manager_version: int
) -> Plan:
    """Reads what is there, changes nothing. Raises `Refused`: the unit is another's, or of
    another store; a file cannot be read."""
    unit_path, variables_path = service.unit_path, service.environment_path
    present = host.find_text(Path(unit_path))
    text = unit_text(service, manager_version=manager_version)
    unit = wanted_unit(unit_path, text, present, store=service.store)
    present = host.find_text(Path(variables_path))
    stated = wanted_variables(variables_path, merged(present, variables), present)
    account = service.account
    lacking = account is not None and not host.has_account(account)
    if lacking and account != ACCOUNT_DEFAULT:
        raise Refused(
            "account_unknown",
            f"--run-as {account!r} names no account of this host: make it, or leave --run-as out "
            f"for one of the name {ACCOUNT_DEFAULT!r}, which is made here",
        )
    for group in service.groups:
        if not host.has_group(group):
            raise Refused(
                "group_unknown",
                f"--group {group!r} names no group of this host, and systemd would not start the "
                "service: make it, or leave it out",
            )
    return Plan(service, account if lacking else None, (stated, unit))


def check_program(service: Service, host: Host) -> None:
    """Raises `Refused` when whoever is to run it cannot."""
    why = host.why_program_fails([*service.program, "version"], service.account)
    if why is not None:
        who = f"the account {service.account!r}" if service.account else "this user"
        raise Refused(
            "program_unusable",
            f"{who} cannot run `{' '.join(service.program)}` without this shell's environment "
            f"({why}): install stado where it can be read and found by itself, such as a virtual "
            "environment in /opt/stado",
        )


def check_linger(user: str, manager: Manager) -> None:
    """Raises `Refused` when services of this user end with their last session."""
    if not manager.lingers(user):
        raise Refused(
            "linger_missing",
            f"services of {user} end when {user} logs out, and are not started with the host: "
            f"`loginctl enable-linger {user}` changes that; --no-linger installs it as it is",
        )


def apply(plan: Plan, manager: Manager, host: Host, *, start: bool) -> Done:
    """Does what is lacking, and nothing else: also what an earlier call has written and did not
    get systemd or the service to take up. Raises `Refused`."""
    if plan.account is not None:
        host.make_account(plan.account, home=ACCOUNT_HOME)
    written = tuple(file for file in plan.files if file.differs)
    for file in written:
        host.write_text(Path(file.path), file.text, file.mode)
    narrowed = host.narrow(Path(plan.service.environment_path), SECRET_MODE)
    state = manager.state(plan.service.unit)
    if written or state.needs_reload:
        manager.reload()
    enable = state.enabled != "enabled"
    if enable:
        manager.enable(plan.service.unit)
    runs = state.active in ("active", "activating", "reloading")
    outdated = not written and runs and _outdated(plan.service, manager, host)
    restart = start and (bool(written) or outdated or not runs)
    if restart:
        manager.restart(plan.service.unit)
    caught_up = (state.needs_reload and not written) or (restart and outdated)
    return Done(written, enable, restart, narrowed, caught_up, state)


def _outdated(service: Service, manager: Manager, host: Host) -> bool:
    """Whether its process is older than what it should have been started with."""
    started_at = manager.started_at(service.unit)
    if started_at is None:
        return False
    times = [host.modified_at(Path(path)) for path in (service.unit_path, service.environment_path)]
    return any(at is not None and at > started_at + _CLOCK_SECONDS for at in times)


def remove_unit(unit: str, path: Path, manager: Manager, host: Host) -> bool:
    """Of a service that is stopped. Whether it was there. Repeated, it goes on. Raises
    `Refused`."""
    manager.disable(unit)
    gone = host.remove(path)
    manager.reload()
    manager.forget_failure(unit)
    return gone


def what_stays(variables: str | None, folder: str | None, host: Host) -> tuple[str, ...]:
    """Of a service that is gone, as far as it is there. Raises `Refused`."""
    files = [] if variables is None or host.find_text(Path(variables)) is None else [variables]
    return (*files, *([folder] if folder is not None and Path(folder).is_dir() else []))


def purge(variables: str | None, folder: str | None, host: Host) -> tuple[str, ...]:
    """Removes the file of variables and an agent's own folder; of the work folder around that,
    which may be other agents' too, only what would be left empty. Raises `Refused`."""
    gone = [variables] if variables is not None and host.remove(Path(variables)) else []
    if folder is not None and Path(folder).is_dir():
        host.remove_tree(Path(folder))
        gone.append(folder)
    if folder is not None and host.remove_if_empty(Path(folder).parent):
        gone.append(str(Path(folder).parent))
    return tuple(gone)
