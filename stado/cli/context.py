"""What a command works with: the settings, this machine's ports, and the opened store.

The only place of the command line that reads the environment and builds adapters. Imports
nothing of it until a command asks for the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stado.errors import Refused, StadoError

if TYPE_CHECKING:
    from stado.choice import Choice
    from stado.composition import Machine
    from stado.config_file import ConfigFile
    from stado.jobs.repository import Repository
    from stado.ports import Hardware, HostProcesses
    from stado.profile_files import ProfileFolder
    from stado.services.service import Places, Scope
    from stado.settings import Settings
    from stado.storage.port import Store
    from stado.storage.trouble import StoreTrouble
    from stado.system.children import ChildProgram
    from stado.system.service_host import ServiceHost
    from stado.system.service_manager import ServiceManager
    from stado.target import Target


_GIVEN_ENVIRONMENT = dict(os.environ)

_ENDPOINT_TOLD = f"{__name__}.endpoint_told"

_LOCK_ATTEMPTS = 200
_LOCK_PAUSE_SECONDS = 0.05


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def debugging() -> bool:
    """Whether a traceback is wanted."""
    return bool(os.environ.get("STADO_DEBUG"))


def colour_unwanted() -> bool:
    """https://no-color.org (set and not empty), or a terminal that knows no colours."""
    return bool(os.environ.get("NO_COLOR")) or terminal_is_dumb()


def terminal_is_dumb() -> bool:
    """Whether it takes text and nothing else."""
    return os.environ.get("TERM") == "dumb"


def child_environment(settings: Settings) -> dict[str, str]:
    """Ours as we were given it, naming the store."""
    return {**_GIVEN_ENVIRONMENT, **settings.environment()}


def check_no_agent(consumer: str | None, work_dir: Path | None) -> None:
    """Raises `Refused` where an agent of this name works on this host already."""
    from stado.core import keys
    from stado.system.folder_lock import FolderLock, check_agent_may_start

    name = consumer or f"local@{host_name()}"
    lock_path = (work_dir or default_work_dir()) / keys.component(name) / "lock"
    if not lock_path.exists():
        return
    lock = FolderLock(lock_path)
    with lock as ours:
        check_agent_may_start(name, lock, ours=ours)


def start_child(argv: Sequence[str], environment: Mapping[str, str]) -> ChildProgram:
    """A program of ours beside us, on our terminal."""
    from stado.system.children import ChildProgram

    return ChildProgram(argv, environment)


def user_name() -> str:
    """Whose name an act is recorded under. Raises `Refused` when nothing tells."""
    from stado.system.account import account_name

    return account_name(os.environ)


def read_settings(target: Target) -> Settings:
    """Which store counts. Raises `Refused` for a broken file, and a context that is not there."""
    choice = read_choice(target)
    _tell_idle_endpoint(choice)
    return choice.settings


def _tell_idle_endpoint(choice: Choice) -> None:
    """Once a command."""
    from stado.choice import idle_endpoint_text
    from stado.cli.render import tell

    text, context = idle_endpoint_text(choice), click.get_current_context(silent=True)
    told = {} if context is None else context.meta
    if text is not None and not told.get(_ENDPOINT_TOLD):
        told[_ENDPOINT_TOLD] = True
        tell(f"note: {text}")


def read_choice(target: Target) -> Choice:
    """As `read_settings`, and where each setting stands."""
    from stado import composition
    from stado.settings import Settings

    return composition.read_choice(Settings(*target), os.environ, _home())


def read_config_file() -> ConfigFile:
    """One that states nothing where there is none. Raises `Refused` for a broken file."""
    from stado import composition

    return composition.read_config_file(os.environ, _home())


def config_path() -> Path:
    """Where the config file is, or would be."""
    from stado import settings

    return settings.config_path(os.environ, _home())


def host_processes() -> HostProcesses:
    """What jobs started on this machine."""
    from stado.system.host_processes import LiveHostProcesses

    return LiveHostProcesses()


def profile_folder() -> ProfileFolder:
    """Of submit profiles. Raises `Refused` when the environment names one that is none."""
    from stado import profile_files

    return profile_files.profile_folder(os.environ)


def context_names() -> list[str]:
    """For a shell that completes a line: none where the config file cannot be read."""
    try:
        return list(read_config_file().contexts)
    except StadoError:
        return []


def is_set(variable: str) -> bool:
    """Whether our environment has a variable that says something."""
    return bool(os.environ.get(variable))


def login_shell() -> str:
    """The name of the user's shell, as far as the environment tells; "" when it does not."""
    return Path(os.environ.get("SHELL", "")).name


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Of those who name the same lock file, one at a time is within. Raises `Refused` when
    another one stays for seconds."""
    from stado.system.folder_lock import FolderLock

    clock = live_machine().clock
    for _ in range(_LOCK_ATTEMPTS):
        lock = FolderLock(path)
        with lock as ours:
            if ours:
                yield
                return
        clock.sleep(_LOCK_PAUSE_SECONDS)
    raise Refused("config_busy", f"another program holds {path}: try again when it has ended")


def service_manager(*, user: bool) -> ServiceManager:
    """systemd of this host, or of this user."""
    from stado.system.service_manager import ServiceManager

    return ServiceManager(user=user, environment=dict(os.environ))


def service_host() -> ServiceHost:
    """Files and accounts of this host."""
    from stado.system.service_host import ServiceHost

    return ServiceHost()


def service_places(scope: Scope) -> Places:
    """Where its files are."""
    from stado.services import service

    if scope is service.Scope.SYSTEM:
        return service.SYSTEM_PLACES
    return service.user_places(
        home=str(_home()),
        config_home=os.environ.get("XDG_CONFIG_HOME") or None,
        state_home=os.environ.get("XDG_STATE_HOME") or None,
    )


def given_variables(wanted: Callable[[str], bool]) -> dict[str, str]:
    """Of our environment: those whose names are wanted."""
    return {name: value for name, value in os.environ.items() if wanted(name)}


def own_account() -> str:
    """The name of the account that this process runs as, whatever the environment says. Raises
    `Refused` when the user database holds none."""
    from stado.system.account import account_name

    return account_name({})


def host_name() -> str:
    """As agents of this host are named by."""
    from stado.system.hardware import LiveHardware

    return LiveHardware().host_name()


def host_hardware() -> Hardware:
    """What this host has."""
    from stado.system.hardware import LiveHardware

    return LiveHardware()


def default_work_dir() -> Path:
    """Where jobs of an agent of this account work, unless it is told another folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else _home() / ".local/state") / "stado"


def _home() -> Path:
    """`~` itself where nothing tells where it is: then there is no config file."""
    return Path(os.path.expanduser("~"))


def live_machine() -> Machine:
    from stado import composition

    composition.log_nowhere()
    return composition.live_machine()


@contextmanager
def watched_store(machine: Machine) -> Iterator[StoreTrouble]:
    """For the stores that are opened within: what keeps a command waiting is counted, and told
    on stderr."""
    from stado.cli.waiting_lines import telling
    from stado.storage.trouble import StoreTrouble

    trouble = StoreTrouble(machine.clock, machine.tasks)
    with telling(trouble, machine):
        yield trouble


@contextmanager
def opened_store(
    settings: Settings,
    machine: Machine,
    *,
    create: bool = False,
    trouble: StoreTrouble | None = None,
) -> Iterator[Store]:
    """A store that need not be a deployment. Raises `Refused` when none is named. `trouble` is
    that of `watched_store` where a command opens more than one."""
    from stado.composition import open_store_of

    with _watched(machine, trouble) as watched:
        store = open_store_of(settings, machine, create=create, trouble=watched)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def opened_repository(target: Target, trouble: StoreTrouble | None = None) -> Iterator[Repository]:
    """The deployment in the store that the options, the environment or the file name. `trouble`
    is that of `watched_store` where a command opens more than one."""
    from stado.composition import open_repository

    settings, machine = read_settings(target), live_machine()
    with _naming_the_store(settings), _watched(machine, trouble) as watched:
        repo = open_repository(settings, machine, watched)
        try:
            yield repo
        finally:
            repo.store.close()


def _watched(
    machine: Machine, trouble: StoreTrouble | None
) -> AbstractContextManager[StoreTrouble]:
    return watched_store(machine) if trouble is None else nullcontext(trouble)


@contextmanager
def _naming_the_store(settings: Settings) -> Iterator[None]:
    """A store that does not answer, or says no, tells of a key: people have to know where."""
    from stado.errors import Ambiguous, Denied, Unavailable

    try:
        yield
    except (Ambiguous, Denied, Unavailable) as error:
        if settings.store is not None and settings.store not in str(error):
            server = f" at {settings.endpoint}" if settings.endpoint else ""
            error.add_note(f"(store {settings.store}{server})")
        raise
