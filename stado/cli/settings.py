"""`stado settings …`: what the deployment decides for all of its jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from stado.cli import exits
from stado.cli.context import json_option, opened_repository, user_name
from stado.cli.options import plain_text
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.settings import DeploymentSettings

_WIDE_MAX = 44
"""Of the column of values: a longer one stands in nobody else's way."""

_WHEN_KEPT = "nothing is deleted by that: `stado retention run` lists what it comes to"

_WHEN = "it counts for what workers pick up from now on; they look each two minutes"


def known_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """For a shell that completes what is typed."""
    from stado.core.settings import SETTINGS

    return [name for name in SETTINGS if name.startswith(incomplete)]


def _known_name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    from stado.core.settings import setting_named

    setting_named(value)
    return value


_name_argument = click.argument(
    "name", metavar="NAME", callback=_known_name, shell_complete=known_names
)


@click.command("list")
@json_option
@target_options
def list_settings(*, as_json: bool, target: Target) -> None:
    """List all settings of the deployment.

    \b
      stado settings list
    """
    from stado.cli import render
    from stado.cli.stories import moment_text
    from stado.core.settings import SETTINGS
    from stado.jobs.settings import read_settings

    with opened_repository(target) as repo:
        settings = read_settings(repo)
    if as_json:
        render.print_json(_fields(settings))
        return
    texts = {name: _text(settings, name) for name in SETTINGS}
    width, wide = max(map(len, SETTINGS)), min(_WIDE_MAX, max(map(len, texts.values())))
    for name, setting in SETTINGS.items():
        line = f"{name:<{width}}  {texts[name]:<{wide}}  {setting.what}"
        render.print_wrapped(line, indent=width + 2)
    if settings.changed_at is not None:
        at = moment_text(settings.changed_at)
        render.tell(f"changed last at {at} by {settings.changed_by}")


@click.command()
@_name_argument
@json_option
@target_options
def get(*, name: str, as_json: bool, target: Target) -> int:
    """Print the value of a setting; exit with 1 where it is not set.

    \b
      stado settings get limits.runtime_seconds
    """
    from stado.cli import render
    from stado.core.settings import SETTINGS, value_of
    from stado.jobs.settings import read_settings

    with opened_repository(target) as repo:
        value = value_of(read_settings(repo), name)
    if as_json:
        render.print_json({"name": name, "value": value})
    elif value not in (None, []):
        render.print_line(
            SETTINGS[name].text(value) if isinstance(value, (list, dict)) else str(value)
        )
    else:
        render.tell(f"stado: {name} is not set: {SETTINGS[name].unset}")
    return exits.FAILED if value in (None, []) else exits.OK


class _WithNegatives(click.Command):
    """What looks like a negative number is a value, and no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        negatives = [one for one in args if re.match(r"-\d", one)]
        others = [one for one in args if one not in negatives]
        return super().parse_args(ctx, [*others, "--", *negatives] if negatives else others)


@click.command("set", cls=_WithNegatives)
@_name_argument
@click.argument("value", callback=plain_text)
@json_option
@target_options
def set_value(*, name: str, value: str, as_json: bool, target: Target) -> None:
    """Change a setting of the deployment, for all who use it.

    \b
      stado settings set limits.runtime_seconds 12h
    """
    from stado.core.settings import parse_value

    _change(name, parse_value(name, value), as_json=as_json, target=target)


@click.command()
@_name_argument
@json_option
@target_options
def unset(*, name: str, as_json: bool, target: Target) -> None:
    """Let a setting of the deployment say nothing again.

    \b
      stado settings unset limits.runtime_seconds
    """
    _change(name, None, as_json=as_json, target=target)


def _change(name: str, value: Any, *, as_json: bool, target: Target) -> None:
    from stado.cli import render
    from stado.jobs.settings import change_setting

    user = user_name()
    with opened_repository(target) as repo:
        settings = change_setting(repo, name, value, by=user)
    if as_json:
        render.print_json(_fields(settings))
    else:
        when = _WHEN_KEPT if name.startswith("retention.") else _WHEN
        render.tell(f"{name}: {_text(settings, name)}; {when}")


def _text(settings: DeploymentSettings, name: str) -> str:
    from stado.core.settings import SETTINGS, value_of

    value = value_of(settings, name)
    return SETTINGS[name].unset if value in (None, []) else SETTINGS[name].text(value)


def _fields(settings: DeploymentSettings) -> dict[str, Any]:
    from stado.cli import render
    from stado.core.settings import SETTINGS, value_of

    return {
        "settings": {name: value_of(settings, name) for name in SETTINGS},
        "changed_at": render.instant_text(settings.changed_at),
        "changed_by": settings.changed_by,
    }
