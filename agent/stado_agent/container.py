"""The command line by which an engine runs a job's command in a container. Pure: names of
variables are in it, values never are.

The client is steered by variables of its own (`DOCKER_HOST`, `PATH`, proxies, `LD_PRELOAD` …), of
which nobody has a whole list. So no variable of a job gets into the client's environment under
its own name: each travels under a name of ours, and a shell in the container gives it its own back
before it runs the command. That shell also keeps the container as long as others of the command's
group, which got a TERM with it, are still ending: a container ends with its first process, and the
shell of a command ends at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stado.core.records import Record
from stado.ports import ProcessIdentity

SUPERVISOR_LABEL = "stado.supervisor"
AGENT_LABEL = "stado.agent"
COMMAND_LABEL = "stado.command"
NO_BASH_EXIT_CODE = 127

SHELL = "/bin/sh"
_VALUE = "STADO_VALUE_"
_READ_ONLY = frozenset({"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "OPTIND"})
"""What a shell may refuse to set. None of it steers the client."""

_KEEPER = """\
stado_group() {
for STADO_STAT in /proc/[0-9]*/stat; do
[ "$STADO_STAT" != "/proc/$$/stat" ] || continue
{ read -r STADO_LINE <"$STADO_STAT"; } 2>/dev/null || continue
STADO_LINE="${STADO_LINE##*) }"
case "$STADO_LINE" in Z*) continue ;; esac
STADO_LINE="${STADO_LINE#* }"
STADO_LINE="${STADO_LINE#* }"
[ "${STADO_LINE%% *}" = "$$" ] && return 0
done
return 1
}
trap STADO_TERM=1 TERM
"$@"
STADO_CODE="$?"
while [ -n "${STADO_TERM-}" ] && stado_group; do sleep 0.1 || break; done
exit "$STADO_CODE"
"""
"""In `/proc/<pid>/stat` the group is the third field behind the name. The trap runs once the
command has ended, and is none of the command's."""

_MEMORY_BYTES_MIN = 6 * 1024**2
"""Engines take no less."""
_MIB = 1024**2

_GROUP_SIGNALS = "TINI_KILL_PROCESS_GROUP"
"""Heeded by the engine's init: TERM reaches the command's group, not its shell alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyImage:
    """An image that the engine has."""

    id: str
    """By its content: all commands of a job have the same, whatever becomes of the tag."""
    user: str | None
    """`uid:gid` to run as; None: as the engine's root, where that is our own user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """Whose a container is, for whoever has to end it."""

    record: Record
    supervisor: str
    """Value of its label (`supervisor_name`)."""
    agent: str
    number: int
    """Of the job's command, in this epoch."""

    @property
    def command(self) -> str:
        return f"{self.record.id}.{self.record.epoch}.{self.number}@{self.supervisor}"

    @property
    def labels(self) -> dict[str, str]:
        return {
            AGENT_LABEL: self.agent,
            SUPERVISOR_LABEL: self.supervisor,
            COMMAND_LABEL: self.command,
            "stado.job": self.record.id,
            "stado.epoch": str(self.record.epoch),
        }

    @property
    def container_name(self) -> str:
        """For people who look at the host: nothing goes by it."""
        pid = self.supervisor.partition(".")[0]
        return f"stado-{self.record.id}.{self.record.epoch}.{self.number}-{pid}"


def supervisor_name(supervisor: ProcessIdentity, boot_id: str | None) -> str:
    """One for ever: a pid is used again, and start times are counted from a boot on."""
    return f"{supervisor.pid}.{supervisor.started}.{boot_id or 'unknown'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCommand:
    """What is to run, and in what."""

    image: ReadyImage
    argv: Sequence[str]
    """In the container."""
    environment: Mapping[str, str]
    """There."""
    mounts: Sequence[Path]
    """Folders of the host that it may write, each at its own place."""
    folder: Path
    """Where it runs: in one of the mounts."""
    belonging: Belonging
    id_file: Path
    """Where the client leaves the container's id; not there yet. In no mount: who could write it
    could have another container ended."""
    begun: Path
    """In a mount: is there once the image's shell has begun."""
    memory_bytes: int | None
    """What all its processes together may have; None: no limit of its own."""
    shared_memory_bytes: int
    """At most, of `/dev/shm`: programs that load data in several processes want it."""


def client_argv(program: str, command: ContainerCommand) -> list[str]:
    options = [
        *("--init", "--pull", "never", "--log-driver", "none", "--no-healthcheck"),
        *("--security-opt", "no-new-privileges"),
        *("--name", command.belonging.container_name, "--cidfile", str(command.id_file)),
        *_repeated("--label", [f"{k}={v}" for k, v in command.belonging.labels.items()]),
        *(("--user", command.image.user) if command.image.user is not None else ()),
        *_memory_options(command),
        *_card_options(command.belonging.record),
        *_repeated("--mount", [_mount(folder) for folder in command.mounts]),
        *("--workdir", str(command.folder), "--env", f"{_GROUP_SIGNALS}=1"),
        *_repeated("--env", list(_values(command.environment))),
        *("--entrypoint", SHELL),
    ]
    script, begun = _script(command.environment), str(command.begun)
    return [program, "run", *options, command.image.id, "-c", script, begun, *command.argv]


def client_environment(host: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """`host`: what the client goes by itself."""
    return {**host, **_values(environment)}


def strict_argv(argv: Sequence[str], missing: Path) -> tuple[str, ...]:
    """What a strict shell is to be started by in a container: where the image has no bash, a file
    says so."""
    script = 'command -v bash >/dev/null 2>&1 || { : >"$0"; exit %d; }; exec "$@"'
    return (SHELL, "-c", script % NO_BASH_EXIT_CODE, str(missing), *argv)


def _memory_options(command: ContainerCommand) -> list[str]:
    shared = ["--shm-size", str(max(_MIB, command.shared_memory_bytes))]
    if command.memory_bytes is None:
        return shared
    limit = str(max(_MEMORY_BYTES_MIN, command.memory_bytes))
    return ["--memory", limit, "--memory-swap", limit, *shared]


def _card_options(record: Record) -> list[str]:
    """The engine shows a container none of the host's cards but these."""
    cards = record.holder.cards if record.holder is not None else []
    return ["--gpus", _csv_field(f"device={','.join(cards)}")] if cards else []


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def _mount(folder: Path) -> str:
    """Refused by the engine when the folder is not there: nothing is made on the host."""
    fields = ("type=bind", f"source={folder}", f"target={folder}")
    return ",".join(map(_csv_field, fields))


def _csv_field(text: str) -> str:
    if not set(text) & set(',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _values(environment: Mapping[str, str]) -> dict[str, str]:
    """By the name that each travels under."""
    return {
        name if name in _READ_ONLY else f"{_VALUE}{number}": value
        for number, (name, value) in enumerate(environment.items())
    }


def _script(environment: Mapping[str, str]) -> str:
    """Names are letters, digits and _ (`stado.core.spec`); values are not in it."""
    renamed = [
        f'{name}="${_VALUE}{number}"; export {name}; unset {_VALUE}{number}; '
        for number, name in enumerate(environment)
        if name not in _READ_ONLY
    ]
    return "".join(['( : >"$0" ) 2>/dev/null; ', *renamed, _KEEPER])
