"""Where the programs are put together: settings, this machine's ports, and the opened store.

Each program's entry point calls this with the environment that it read. Imports adapters when
they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stado.choice import Choice, choose, idle_endpoint_text
from stado.config_file import ConfigFile, read_config
from stado.errors import Refused
from stado.settings import CONFIG_VARIABLE, Settings, config_path, from_environment, store_of

if TYPE_CHECKING:
    from logging import LogRecord

    from stado.jobs.repository import Repository
    from stado.ports import Clock, Entropy, Tasks
    from stado.storage.meter import RequestMeter
    from stado.storage.port import OpenStore, Store
    from stado.storage.trouble import StoreTrouble


_REACH_SECONDS = 5.0


class Machine(NamedTuple):
    """This machine's ports."""

    clock: Clock
    entropy: Entropy
    tasks: Tasks


_OUR_LOGGERS = ("stado", "stado_agent", "stado_coordinator")


def log_to_stderr() -> None:
    """One line an event, for programs that run on and on. Of libraries what they warn of."""
    import logging

    class Line(logging.Formatter):
        """A message may quote what a bucket holds, which shall not drive a terminal."""

        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - theirs
            return _printable(super().formatMessage(record))

    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(Line("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[to_stderr])
    for name in _OUR_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_in_one_line)


def _in_one_line(record: LogRecord) -> bool:
    """Libraries warn with the traceback of an error that they have answered, such as an answer
    whose headers were cut off."""
    if record.name.partition(".")[0] not in _OUR_LOGGERS:
        record.exc_info = None
    return True


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def log_nowhere() -> None:
    """For commands, which tell people in sentences: Python prints warnings that nobody takes."""
    import logging

    ours = logging.getLogger("stado")
    if not ours.handlers:
        ours.addHandler(logging.NullHandler())


def live_machine() -> Machine:
    from stado.system.clock import LiveClock
    from stado.system.entropy import LiveEntropy
    from stado.system.tasks import LiveTasks

    return Machine(LiveClock(), LiveEntropy(), LiveTasks())


def read_settings(
    options: Settings,
    environment: Mapping[str, str],
    home: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> Settings:
    """Which store counts; `tell` gets what is stated in vain, where that leads to another server.
    Raises `Refused` for a broken file, and a context that is not there."""
    choice = read_choice(options, environment, home)
    text = idle_endpoint_text(choice)
    if text is not None:
        tell(text)
    return choice.settings


def read_choice(options: Settings, environment: Mapping[str, str], home: Path) -> Choice:
    """As `read_settings`, and where each setting stands. A broken file is in nobody's way who
    names a folder by an option."""
    try:
        file = read_config_file(environment, home)
    except Refused:
        if not _is_folder(options.store):
            raise
        file = ConfigFile()
    return choose(options, from_environment(environment), file)


def read_config_file(environment: Mapping[str, str], home: Path) -> ConfigFile:
    """One that states nothing where there is none. Raises `Refused` for a broken file."""
    path = config_path(environment, home)
    data = _config_bytes(path, named=bool(environment.get(CONFIG_VARIABLE)))
    return ConfigFile(name=str(path)) if data is None else read_config(data, str(path))


def logged_trouble(machine: Machine) -> StoreTrouble:
    """Counts what a store puts off, and logs a line an outage: for programs that log."""
    from stado.storage.trouble import StoreTrouble
    from stado.storage.trouble_log import TroubleLog

    return StoreTrouble(machine.clock, machine.tasks, TroubleLog(machine.clock))


def open_store_of(
    settings: Settings,
    machine: Machine,
    *,
    create: bool = False,
    conditional_delete: bool = True,
    trouble: StoreTrouble | None = None,
    meter: RequestMeter | None = None,
) -> Store:
    """Raises `Refused` when no store is named, else what the store raises. `trouble` hears of
    each attempt that is repeated, `meter` of each request to a bucket."""
    from stado.storage.open import open_store

    return open_store(
        store_of(settings),
        endpoint=settings.endpoint,
        region=settings.region,
        clock=machine.clock,
        entropy=machine.entropy,
        tasks=machine.tasks,
        create=create,
        conditional_delete=conditional_delete,
        trouble=trouble,
        meter=meter,
    )


def open_repository(
    settings: Settings, machine: Machine, trouble: StoreTrouble | None = None
) -> Repository:
    """The deployment in a store. One read; the caller closes the repository's store."""
    from stado.jobs.deployments import read_deployment
    from stado.jobs.repository import Repository

    store = open_store_of(settings, machine, trouble=trouble)
    deployment = read_deployment(store)
    if not deployment.proof.conditional_delete:
        store.close()
        store = open_store_of(settings, machine, conditional_delete=False, trouble=trouble)
    return Repository(store, deployment, **machine._asdict())


def open_repository_when_reachable(
    settings: Settings,
    machine: Machine,
    trouble: StoreTrouble | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Repository:
    """For programs that run on and on, and may be started before the network is there: waits for
    a store that does not answer, and says so by `tell`. What cannot be mended by waiting is raised
    at once."""
    import logging

    from stado.errors import Ambiguous, Unavailable

    said = False
    while True:
        try:
            return open_repository(settings, machine, trouble)
        except (Unavailable, Ambiguous) as error:
            if not said:
                logging.getLogger(__name__).warning("event=waiting_for_store error=%r", str(error))
                tell(f"waiting for the store: {error}")
            said = True
        machine.clock.sleep(machine.entropy.uniform(0.5, 1.0) * _REACH_SECONDS)


def unused_repository(
    settings: Settings, machine: Machine, like: Repository, trouble: StoreTrouble | None = None
) -> Repository:
    """Another repository of the same deployment whose store has sent nothing yet: what a process
    prepares for those that it forks, since a connection must not be shared. What each of them asks
    of the store is counted."""
    from stado.jobs.repository import Repository
    from stado.storage.meter import RequestMeter

    meter = RequestMeter(machine.tasks)
    honoured = like.deployment.proof.conditional_delete
    store = open_store_of(
        settings, machine, conditional_delete=honoured, trouble=trouble, meter=meter
    )
    return Repository(store, like.deployment, meter=meter, **machine._asdict())


def opener_of_stores(settings: Settings, machine: Machine) -> OpenStore:
    """Opens other stores with this host's credentials: one of the kind of the deployment's own on
    the same server, another one where its SDK looks for it."""
    from stado.storage.open import are_of_one_kind, check_takes_copies, open_store

    own = store_of(settings)

    def open_other_store(address: str, *, to_write: bool) -> Store:
        if to_write:
            check_takes_copies(address, own=own)
        alike = are_of_one_kind(address, own)
        return open_store(
            address,
            endpoint=settings.endpoint if alike else None,
            region=settings.region if alike else None,
            conditional_delete=False,
            **machine._asdict(),
        )

    return open_other_store


def _is_folder(address: str | None) -> bool:
    """Whether an address says all that there is to say of a store: a bucket has an endpoint too,
    which the config file may state."""
    from stado.errors import Misconfigured
    from stado.storage.open import Scheme, parse_address

    try:
        return address is not None and parse_address(address).scheme is Scheme.FILE
    except Misconfigured:
        return False


def _config_bytes(path: Path, *, named: bool) -> bytes | None:
    """None when there is no file and nobody said that there is one."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if not named:
            return None
        raise Refused("config_invalid", f"{path}: {CONFIG_VARIABLE} names no file") from None
    except OSError as error:
        raise Refused("config_invalid", f"{path} cannot be read: {error.strerror}") from None
