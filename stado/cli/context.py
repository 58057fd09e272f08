"""What a command works with: the settings, this machine's ports, and the opened store.

The only place of the command line that reads the environment and builds adapters. Imports
nothing of it until a command asks for the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stado.composition import Machine
    from stado.jobs.repository import Repository
    from stado.settings import Settings
    from stado.storage.port import Store
    from stado.system.children import ChildProgram
    from stado.target import Target


_GIVEN_ENVIRONMENT = dict(os.environ)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def debugging() -> bool:
    """Whether a traceback is wanted."""
    return bool(os.environ.get("STADO_DEBUG"))


def colour_unwanted() -> bool:
    """https://no-color.org: set and not empty."""
    return bool(os.environ.get("NO_COLOR"))


def child_environment(settings: Settings) -> dict[str, str]:
    """Ours as we were given it, naming the store."""
    return {**_GIVEN_ENVIRONMENT, **settings.environment()}


def start_child(argv: Sequence[str], environment: Mapping[str, str]) -> ChildProgram:
    """A program of ours beside us, on our terminal."""
    from stado.system.children import ChildProgram

    return ChildProgram(argv, environment)


def user_name() -> str:
    """Whose name an act is recorded under. Raises `Refused` when nothing tells."""
    from stado.system.account import account_name

    return account_name(os.environ)


def read_settings(target: Target) -> Settings:
    """Options, then environment, then config file. Raises `Refused` for a broken file."""
    from stado import composition
    from stado.settings import Settings

    return composition.read_settings(Settings(*target), os.environ, Path("~").expanduser())


def live_machine() -> Machine:
    from stado import composition

    return composition.live_machine()


@contextmanager
def opened_store(settings: Settings, machine: Machine, *, create: bool = False) -> Iterator[Store]:
    """A store that need not be a deployment. Raises `Refused` when none is named."""
    from stado.composition import open_store_of

    store = open_store_of(settings, machine, create=create)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened_repository(target: Target) -> Iterator[Repository]:
    """The deployment in the store that the options, the environment or the file name."""
    from stado.composition import open_repository

    settings = read_settings(target)
    with _naming_the_store(settings):
        repo = open_repository(settings, live_machine())
        try:
            yield repo
        finally:
            repo.store.close()


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
