"""The text of a unit, and what one says that is there already.

Directives are those of systemd.service(5), systemd.exec(5) and systemd.resource-control(5). Each
that limits a program is there because the program can do with it; of those that are left out of
an agent's unit the text says why, since what a unit restricts it restricts for jobs too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from stado.services.service import Kind, Scope, Service

SECTION = "X-Stado"
"""Of our own words in a unit: the service manager passes over sections that begin with `X-`."""

SUBGROUP_SINCE = 254
"""From this version on systemd starts a main process in a control group below its unit's, and
lengthens the pause between restarts."""

_WATCHDOG_SECONDS = 600
_STOP_SECONDS = 30
_RESTART_SECONDS = 5
_RESTART_SECONDS_OF_OLD = 20
_RESTART_SECONDS_MAX = 300
_PLAIN = re.compile(r"[A-Za-z0-9_@+:,./=-]+")
_TEMPORARY = (PurePosixPath("/tmp"), PurePosixPath("/var/tmp"))  # noqa: S108 - not written to


@dataclass(frozen=True, slots=True)
class Stated:
    """What a unit of ours says of itself."""

    kind: str
    store: str
    consumer: str | None
    work_dir: str | None
    endpoint: str | None
    region: str | None
    environment_file: str | None


def unit_text(service: Service, *, manager_version: int) -> str:
    """`manager_version`: of the systemd that is to read it."""
    lines = [*_head(service), "", "[Service]", *_process(service, manager_version)]
    lines += [*_jobs(manager_version)] if service.kind is Kind.AGENT else []
    lines += [*_sandbox(service), "", "[Install]"]
    wanted = "multi-user" if service.scope is Scope.SYSTEM else "default"
    lines += [f"WantedBy={wanted}.target", "", *_own(service)]
    return "\n".join(lines) + "\n"


def read_unit(text: str) -> Stated | None:
    """None: it is no unit of ours."""
    section, found = "", dict[str, str]()
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == SECTION and "=" in line:
            name, _, value = line.partition("=")
            found[name.strip()] = value.strip()
    if "Kind" not in found or "Store" not in found:
        return None
    return Stated(
        kind=found["Kind"],
        store=found["Store"],
        consumer=found.get("Consumer") or None,
        work_dir=found.get("WorkDir") or None,
        endpoint=found.get("Endpoint") or None,
        region=found.get("Region") or None,
        environment_file=found.get("EnvironmentFile") or None,
    )


def quoted(word: str) -> str:
    """As a word of a command line in a unit, where `%` and `$` mean something else."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if _PLAIN.fullmatch(word) else f'"{escaped}"'


def _head(service: Service) -> Iterator[str]:
    yield f"# Written by `stado {service.kind} install`, which writes it anew when it is called"
    yield "# with other words. What you want otherwise belongs beside it, where it stays:"
    scope = " --user" if service.scope is Scope.USER else ""
    yield f"#   systemctl{scope} edit {service.unit}"
    yield "[Unit]"
    yield f"Description=stado {service.kind} on {service.store.replace('%', '%%')}"
    if service.scope is Scope.SYSTEM:
        yield "Wants=network-online.target"
        yield "After=network-online.target"
    yield "# A store that is away for long is no reason to give up for ever."
    yield "StartLimitIntervalSec=0"


def _process(service: Service, version: int) -> Iterator[str]:
    yield "Type=notify"
    yield "NotifyAccess=main"
    yield f"ExecStart={' '.join(map(quoted, service.argv))}"
    yield "# What opens the store stands there, and in no unit and no command line."
    yield f"EnvironmentFile={str(service.environment_path).replace('%', '%%')}"
    if service.scope is Scope.SYSTEM:
        yield f"User={service.account}"
        if service.groups:
            yield f"SupplementaryGroups={' '.join(service.groups)}"
    if service.own_state:
        yield f"StateDirectory={service.state_name}"
        yield "StateDirectoryMode=0700"
    yield f"SyslogIdentifier={service.state_name}"
    yield "# It says that it works once it has read the store, however long that takes."
    yield "TimeoutStartSec=infinity"
    yield "Restart=always"
    if version >= SUBGROUP_SINCE:
        yield f"RestartSec={_RESTART_SECONDS}"
        yield "RestartSteps=6"
        yield f"RestartMaxDelaySec={_RESTART_SECONDS_MAX}"
    else:
        yield f"RestartSec={_RESTART_SECONDS_OF_OLD}"
    yield "# Fed by the main loop alone, each time that it goes round."
    yield f"WatchdogSec={_WATCHDOG_SECONDS}"
    yield f"TimeoutStopSec={_STOP_SECONDS}"


def _jobs(version: int) -> Iterator[str]:
    yield ""
    yield "# Jobs outlive their agent. A stop or a restart ends the agent alone; what runs goes on"
    yield "# under its supervisors, and the next agent takes them back. QUIT: leave at once."
    yield "KillMode=process"
    yield "KillSignal=SIGQUIT"
    yield "SendSIGHUP=no"
    yield "# Control groups of jobs: they are held together and their memory is limited by them."
    yield "Delegate=yes"
    if version >= SUBGROUP_SINCE:
        yield "DelegateSubgroup=stado-agent"
    else:
        yield "# (This systemd is older than 254: memory is looked at instead of limited.)"
    yield "# A job that was ended for its memory is that job's affair, not the agent's."
    yield "OOMPolicy=continue"
    yield "TasksMax=infinity"


def _sandbox(service: Service) -> Iterator[str]:
    yield ""
    if service.kind is Kind.COORDINATOR:
        yield "NoNewPrivileges=yes"
        if service.scope is Scope.SYSTEM:
            yield from _walls(service.store)
    elif service.scope is Scope.SYSTEM:
        yield from _walls_around_jobs()
    else:
        yield "# Jobs may do what you may do: nothing is taken from them here."


def _walls(store: str) -> Iterator[str]:
    """A coordinator reads files and speaks to the store, and no more. Notices may go to programs
    of its owner, which share all this."""
    yield "CapabilityBoundingSet="
    yield "AmbientCapabilities="
    yield "ProtectSystem=strict"
    yield "ProtectHome=read-only"
    folder = PurePosixPath(store) if store.startswith("/") else None
    if folder is None or not any(folder.is_relative_to(one) for one in _TEMPORARY):
        yield "PrivateTmp=yes"
    if folder is not None:
        yield f"ReadWritePaths={quoted(str(folder))}"
    for name in (
        *("PrivateDevices", "ProtectClock", "ProtectControlGroups", "ProtectHostname"),
        *("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables"),
        *("LockPersonality", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
    ):
        yield f"{name}=yes"
    yield "ProtectProc=invisible"
    yield "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6"
    yield "SystemCallArchitectures=native"
    yield "SystemCallFilter=@system-service"
    yield "SystemCallErrorNumber=EPERM"
    yield "UMask=0077" if folder is None else "# No UMask=: others use this directory, too."


def _walls_around_jobs() -> Iterator[str]:
    yield "# What the unit restricts, it restricts for jobs. The account should have no rights of"
    yield "# its own on this host, and gets none by this: no sudo, no setuid program."
    yield "NoNewPrivileges=yes"
    yield "CapabilityBoundingSet="
    yield "AmbientCapabilities="
    yield "ProtectSystem=full"
    yield "# Left out, and why:"
    yield "#   PrivateTmp: it is emptied when the agent stops, under jobs that go on."
    yield "#   RemoveIPC: the same, for shared memory of jobs."
    yield "#   ProtectSystem=strict, ProtectHome: jobs, inputs and stores may be in any folder that"
    yield "#     the account may use."
    yield "#   ProtectControlGroups: jobs are held together and limited by control groups."
    yield "#   PrivateDevices, DeviceAllow, ProtectClock (which sets the second): GPUs are devices."
    yield "#   ProtectKernelTunables, ProtectKernelLogs, ProtectProc, RestrictNamespaces: with them"
    yield "#     containers of users (apptainer, bwrap, podman) could not start."
    yield "#   SystemCallFilter, RestrictAddressFamilies, RestrictRealtime, LockPersonality,"
    yield "#   MemoryDenyWriteExecute, RestrictSUIDSGID, UMask: compilers, debuggers, fast"
    yield "#     networks, archives and shared folders of jobs need what they forbid."


def _own(service: Service) -> Iterator[str]:
    yield f"[{SECTION}]"
    yield f"Kind={service.kind}"
    yield f"Store={service.store}"
    told = (
        ("Endpoint", service.endpoint),
        ("Region", service.region),
        ("Consumer", service.consumer),
        ("WorkDir", service.work_dir),
        ("EnvironmentFile", str(service.environment_path)),
    )
    for name, value in told:
        if value is not None:
            yield f"{name}={value}"
