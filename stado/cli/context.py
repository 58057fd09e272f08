"""What a command works with: the settings, this machine's ports, and the opened store.

The only place of the command line that reads the environment and builds adapters. Imports
nothing of it until a command asks for the store.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from stado.jobs.repository import Repository
    from stado.ports import Clock, Entropy, Tasks
    from stado.settings import Settings
    from stado.storage.port import Store


class Target(NamedTuple):
    """Which store the options of a command name; None: they say nothing."""

    store: str | None
    endpoint: str | None
    region: str | None


class Machine(NamedTuple):
    """This machine's ports."""

    clock: Clock
    entropy: Entropy
    tasks: Tasks


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--store`, `--endpoint` and `--region`; the command gets them as `target`."""

    @click.option(
        "--store",
        metavar="STORE",
        help="Directory, s3://bucket/prefix or gs://bucket/prefix. [env: STADO_STORE]",
    )
    @click.option(
        "--endpoint",
        metavar="URL",
        help="Server of the bucket, other than AWS or Google. [env: STADO_ENDPOINT]",
    )
    @click.option("--region", metavar="NAME", help="Region of the bucket. [env: STADO_REGION]")
    @functools.wraps(command)
    def with_target(
        *, store: str | None, endpoint: str | None, region: str | None, **options: Any
    ) -> Any:
        return command(target=Target(store, endpoint, region), **options)

    return with_target


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def debugging() -> bool:
    """Whether a traceback is wanted."""
    return bool(os.environ.get("STADO_DEBUG"))


def colour_unwanted() -> bool:
    """https://no-color.org: set and not empty."""
    return bool(os.environ.get("NO_COLOR"))


def child_environment(settings: Settings) -> dict[str, str]:
    """Ours, naming the store that we were given."""
    return {**os.environ, **settings.environment()}


def user_name() -> str:
    """Whose name an act is recorded under. Raises `Refused` when nothing tells."""
    from stado.system.account import account_name

    return account_name(os.environ)


def read_settings(target: Target) -> Settings:
    """Options, then environment, then config file. Raises `Refused` for a broken file."""
    from stado import settings

    path = settings.config_path(os.environ, Path("~").expanduser())
    stated = settings.Settings(*target).over(settings.from_environment(os.environ))
    data = _config_bytes(path)
    if data is None:
        return stated
    return stated.over(settings.from_config(data, str(path)))


def live_machine() -> Machine:
    from stado.system.clock import LiveClock
    from stado.system.entropy import LiveEntropy
    from stado.system.tasks import LiveTasks

    return Machine(LiveClock(), LiveEntropy(), LiveTasks())


@contextmanager
def opened_store(
    settings: Settings,
    machine: Machine,
    *,
    create: bool = False,
    conditional_delete: bool = True,
) -> Iterator[Store]:
    """Raises `Refused` when no store is named, else what the store raises."""
    from stado.settings import store_of
    from stado.storage.open import open_store

    store = open_store(
        store_of(settings),
        endpoint=settings.endpoint,
        region=settings.region,
        clock=machine.clock,
        entropy=machine.entropy,
        tasks=machine.tasks,
        create=create,
        conditional_delete=conditional_delete,
    )
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened_repository(target: Target) -> Iterator[Repository]:
    """The deployment in the store that the options, the environment or the file name."""
    from stado.jobs.deployments import read_deployment
    from stado.jobs.repository import Repository

    settings = read_settings(target)
    machine = live_machine()
    with opened_store(settings, machine) as store:
        deployment = read_deployment(store)
        if deployment.proof.conditional_delete:
            yield Repository(store, deployment, **machine._asdict())
            return
    with opened_store(settings, machine, conditional_delete=False) as store:
        yield Repository(store, deployment, **machine._asdict())


def _config_bytes(path: Path) -> bytes | None:
    """None when there is no file and nobody said that there is one."""
    from stado.errors import Refused
    from stado.settings import CONFIG_VARIABLE

    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if not os.environ.get(CONFIG_VARIABLE):
            return None
        raise Refused("config_invalid", f"{path}: {CONFIG_VARIABLE} names no file") from None
    except OSError as error:
        raise Refused("config_invalid", f"{path} cannot be read: {error.strerror}") from None
