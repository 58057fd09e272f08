"""`stado context …`: stores by names of one's own, in the config file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stado.cli.config import NO_OPTIONS, checked_store, tell_unless_it_counts
from stado.cli.context import context_names, json_option, read_choice, read_config_file
from stado.cli.options import plain_text
from stado.target import folder_names

if TYPE_CHECKING:
    from stado.cli.config_changes import Change
    from stado.config_file import ConfigFile
    from stado.errors import Refused
    from stado.settings import Settings


def known_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in context_names() if name.startswith(incomplete)]


@click.command("list")
@json_option
def list_contexts(*, as_json: bool) -> None:
    """List the contexts: stores by names of your own. The current one is marked.

    \b
      stado context list
    """
    from stado.cli import render
    from stado.cli.tables import Column

    file, current = read_config_file(), _find_current()
    if as_json:
        render.print_json(
            {
                "current": current,
                "contexts": [
                    _fields(name, settings, current) for name, settings in file.contexts.items()
                ],
            }
        )
        return
    if not file.contexts:
        render.tell(f"{file.name} has no contexts: `stado context add NAME --store …` makes one")
        return
    render.print_table(
        [Column(""), Column("NAME"), Column("STORE", width_max=48), Column("ENDPOINT")],
        [
            ["*" if name == current else "", name, settings.store or "", settings.endpoint or "-"]
            for name, settings in file.contexts.items()
        ],
    )
    if file.top.context is not None:
        tell_unless_it_counts("context", file.top.context)


@click.command()
@click.argument("name", callback=plain_text)
@click.option(
    "--store",
    required=True,
    metavar="STORE",
    callback=plain_text,
    shell_complete=folder_names,
    help="Directory, s3://bucket/prefix or gs://bucket/prefix.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    callback=plain_text,
    help="Server of the bucket, other than AWS or Google.",
)
@click.option("--region", metavar="NAME", callback=plain_text, help="Region of the bucket.")
@click.option("--use", is_flag=True, help="Make it the current context.")
@click.option("--replace", is_flag=True, help="Replace the context if there is one of this name.")
def add(
    *,
    name: str,
    store: str,
    endpoint: str | None,
    region: str | None,
    use: bool,
    replace: bool,
) -> None:
    """Give a store a name. The store is not contacted; `stado doctor --context NAME` does that.

    \b
      stado context add lab --store s3://lab-jobs/stado --region eu-central-1 --use
      stado context add here --store ./queue
    """
    from stado.cli import render
    from stado.settings import Settings

    stated = Settings(checked_store(store, endpoint), endpoint, region)
    add_context(name, stated, use=use, replace=replace)
    if use:
        render.tell(f"{name} names {stated.store} and is the current context")
        tell_unless_it_counts("context", name)
    else:
        render.tell(f"{name} names {stated.store}; `stado context use {name}` makes it current")


@click.command()
@click.argument("name", callback=plain_text, shell_complete=known_names)
def use(*, name: str) -> None:
    """Make a context the current one: commands work on its store unless something else is said.

    \b
      stado context use lab
      stado config unset context      # none is the current one again
    """
    from stado.cli import render
    from stado.cli.config_changes import Change, change_config

    def decide(file: ConfigFile) -> Sequence[Change]:
        file.context(name)
        return [Change(("context",), name)]

    change_config(decide)
    render.tell(f"{name} is the current context")
    tell_unless_it_counts("context", name)


@click.command()
@click.argument("name", callback=plain_text, shell_complete=known_names)
def remove(*, name: str) -> None:
    """Forget a context. Its store stays as it is.

    \b
      stado context remove lab
    """
    from stado.cli import render
    from stado.cli.config_changes import Change, change_config
    from stado.config_file import CONTEXTS
    from stado.errors import Refused

    def decide(file: ConfigFile) -> Sequence[Change]:
        file.context(name)
        if file.top.context == name:
            raise Refused(
                "context_current",
                f"{name} is the current context: choose another one first (`stado context use "
                "NAME`), or none (`stado config unset context`)",
            )
        return [Change((CONTEXTS, name), None)]

    change_config(decide)
    render.tell(f"{name} is forgotten; its store stays as it is")


@click.command()
@click.argument("name", required=False, callback=plain_text, shell_complete=known_names)
@json_option
def show(*, name: str | None, as_json: bool) -> None:
    """Show a context, or the current one.

    \b
      stado context show lab
    """
    from stado.cli import render
    from stado.config_file import CONTEXTS

    file, current = read_config_file(), _find_current()
    shown = current if name is None else name
    if shown is None:
        raise _no_current()
    settings = file.context(shown)
    if as_json:
        render.print_json(_fields(shown, settings, current))
        return
    render.print_line(f"{shown} (current)" if shown == current else shown)
    for key, value in settings.stated():
        render.print_line(f"  {key:<8} {value}")
    render.print_line(f"  {'from':<8} {file.origin(CONTEXTS, shown)}")


def add_context(name: str, settings: Settings, *, use: bool, replace: bool) -> None:
    """Raises `Refused` when there is another one of this name that may not be replaced."""
    from stado.cli.config_changes import Change, change_config
    from stado.config_file import CONTEXT_KEYS, CONTEXTS

    def decide(file: ConfigFile) -> Sequence[Change]:
        if not replace:
            check_free(file, name, settings)
        told = dict(settings.stated())
        changes = [
            Change((CONTEXTS, name, key), told.get(key))
            for key in CONTEXT_KEYS
            if key in told or name in file.contexts
        ]
        return [*changes, Change(("context",), name)] if use else changes

    change_config(decide)


def check_free(file: ConfigFile, name: str, settings: Settings) -> None:
    """Raises `Refused` when the name cannot be that of this store."""
    from stado.config_file import CONTEXTS, check_context_name
    from stado.errors import Refused

    check_context_name(name)
    standing = file.contexts.get(name)
    if standing is not None and standing != settings:
        raise Refused(
            "context_exists",
            f"{name} names {standing.store} already ({file.origin(CONTEXTS, name)}): choose "
            f"another name, or `stado context add {name} --store … --replace`",
        )


def _fields(name: str, settings: Settings, current: str | None) -> dict[str, object]:
    return {
        "name": name,
        "store": settings.store,
        "endpoint": settings.endpoint,
        "region": settings.region,
        "current": name == current,
    }


def _find_current() -> str | None:
    """The context that commands work on here, be it by the file or by the environment. One that
    does not exist is told, since the lists are where people look then."""
    from stado.cli import render
    from stado.errors import Refused

    try:
        return read_choice(NO_OPTIONS).settings.context
    except Refused as error:
        render.tell(error.text)
        return None


def _no_current() -> Refused:
    from stado.errors import Refused

    store = read_choice(NO_OPTIONS).statements.get("store")
    instead = f"commands work on {store.value} ({store.origin}); " if store is not None else ""
    return Refused(
        "context_none", f"no context is current: {instead}`stado context use NAME` chooses one"
    )
