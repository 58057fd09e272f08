"""`stado config …`: the config file, and which of the settings count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stado.cli import exits
from stado.cli.context import config_path, json_option, read_choice
from stado.cli.options import plain_text
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.choice import Statement
    from stado.cli.config_changes import Change
    from stado.config_file import ConfigFile
    from stado.settings import Origin

NO_OPTIONS = Target(None, None, None)


def known_keys(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from stado.settings import KEYS

    return [key for key in KEYS if key.startswith(incomplete)]


def _known_key(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    from stado.errors import Refused
    from stado.settings import KEYS, did_you_mean

    if value in KEYS:
        return value
    if value.startswith("contexts"):
        remedy = "; `stado context add NAME --replace …` changes a context"
    else:
        remedy = did_you_mean(value, KEYS) or f": the keys are {', '.join(KEYS)}"
    raise Refused("config_key_unknown", f"there is no setting {value!r}{remedy}")


_key_argument = click.argument("key", metavar="KEY", callback=_known_key, shell_complete=known_keys)


@click.command()
@json_option
def path(*, as_json: bool) -> None:
    """Print where the config file is, or would be.

    \b
      $EDITOR "$(stado config path)"
    """
    from stado.cli import render

    found = config_path()
    if as_json:
        render.print_json({"path": str(found), "exists": found.exists()})
    else:
        render.print_line(str(found))


@click.command("list")
@json_option
@target_options
def list_settings(*, as_json: bool, target: Target) -> None:
    """List the settings that count, and where each one comes from.

    \b
      stado config list
      stado config list --context lab      # what would count then
    """
    from stado.cli import render
    from stado.settings import KEYS

    choice = read_choice(target)
    if as_json:
        render.print_json(
            {
                "settings": [_fields(key, choice.statements.get(key)) for key in KEYS],
                "unused": [_fields(one.key, one) for one in choice.unused],
            }
        )
        return
    # Not a table, which a terminal would crop: the end of an address matters.
    render.print_line(_row("SETTING", "FROM", "VALUE"))
    for key in KEYS:
        one = choice.statements.get(key)
        render.print_line(_row(key, _short(one.origin), one.value) if one else _row(key, "-", "-"))
    for one in choice.unused:
        render.tell(f"does not count: {one.key} = {one.value} ({_short(one.origin)})")
    render.tell(f"the config file is {config_path()}")


@click.command()
@_key_argument
@target_options
def get(*, key: str, target: Target) -> int:
    """Print the value of a setting that counts; exit with 1 when nothing states it.

    \b
      stado config get store
    """
    from stado.cli import render

    statement = read_choice(target).statements.get(key)
    if statement is None:
        render.tell(f"stado: {key} is not set")
        return exits.FAILED
    render.print_line(statement.value)
    return exits.OK


@click.command("set")
@_key_argument
@click.argument("value", callback=plain_text)
def set_value(*, key: str, value: str) -> None:
    """Write a setting into the config file. What else stands there stays.

    \b
      stado config set store s3://my-bucket/stado
      stado config set region eu-central-1
    """
    from stado.cli import render
    from stado.cli.config_changes import Change, change_config

    checked = _checked(key, value)

    def decide(file: ConfigFile) -> Sequence[Change]:
        if key == "context":
            file.context(checked)
        return [Change((key,), checked)]

    changed = change_config(decide)
    render.tell(f"{changed}: {key} = {checked}")
    tell_unless_it_counts(key, checked)


@click.command()
@_key_argument
def unset(*, key: str) -> None:
    """Remove a setting from the config file. What else stands there stays.

    \b
      stado config unset context
    """
    from stado.cli import render
    from stado.cli.config_changes import Change, change_config

    stood: list[str] = []

    def decide(file: ConfigFile) -> Sequence[Change]:
        stood.extend(name for name, _ in file.top.stated() if name == key)
        return [Change((key,), None)] if stood else []

    changed = change_config(decide)
    render.tell(f"{changed}: {key} is {'removed' if stood else 'not set'}")


def checked_store(store: str, endpoint: str | None = None) -> str:
    """As it is written down: a directory without what depends on where one stands. Raises
    `Misconfigured` for what no store can have; asks no store."""
    from stado.storage.open import Scheme, check_endpoint, parse_address

    parsed = parse_address(store)
    check_endpoint(endpoint)
    return str(parsed.path.absolute()) if parsed.scheme is Scheme.FILE else store


def tell_unless_it_counts(key: str, value: str) -> None:
    """What is in the file may not be what counts here."""
    from stado.cli import render
    from stado.errors import Refused
    from stado.settings import OriginKind

    try:
        choice = read_choice(NO_OPTIONS)
    except Refused as error:
        render.tell(error.text)
        return
    counts = choice.statements.get(key)
    if counts is not None and counts.value == value:
        return
    instead = choice.statements.get("context") or choice.statements.get("store")
    if instead is None:
        render.tell(f"{key} does not count before a store is named beside it")
        return
    remedy = ""
    if instead.origin.kind is OriginKind.ENVIRONMENT:
        remedy = f": `unset {instead.origin.name}`"
    first = f"the {instead.key} {instead.value} ({instead.origin})"
    render.tell(f"but here {first} counts first{remedy}")


def _checked(key: str, value: str) -> str:
    from stado.errors import Refused
    from stado.storage.open import check_endpoint

    if not value:
        raise Refused("config_value_empty", f"{key} needs a value: `stado config unset {key}`")
    if key == "store":
        return checked_store(value)
    if key == "endpoint":
        check_endpoint(value)
    return value


def _row(key: str, origin: str, value: str) -> str:
    return f"{key:<10}{origin:<22}{value}"


def _short(origin: Origin) -> str:
    return str(origin) if origin.line is None else f"config file, line {origin.line}"


def _fields(key: str, statement: Statement | None) -> dict[str, object]:
    if statement is None:
        return {"key": key, "value": None, "source": "default", "where": None, "line": None}
    origin = statement.origin
    return {
        "key": key,
        "value": statement.value,
        "source": origin.kind.value,
        "where": origin.name,
        "line": origin.line,
    }
