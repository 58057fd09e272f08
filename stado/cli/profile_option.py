"""`--profile`: what a profile states stands where nobody typed the option.

It is the program's default for this call: options that are typed win, also where they say what
the program would do anyway, and each value is checked as if it had been typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stado.core.profiles import Profile

VARIABLES = f"{__name__}.environment"
SECRETS = f"{__name__}.secrets"
_COMMAND = f"{__name__}.command"


def command_of_profile() -> str | None:
    """What the profile of this call runs where no command is typed; None: it does not say, or
    there is no profile."""
    found: str | None = click.get_current_context().meta.get(_COMMAND)
    return found


class ProfileOption(click.Option):
    """Looked at before all others, with what is typed of them at hand."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        name, args = super().handle_parse_result(ctx, opts, args)
        if isinstance(name, str) and not ctx.resilient_parsing:
            from stado.cli.context import profile_folder

            _apply(ctx, profile_folder().read(name), opts)
        return name, args


class KindArgument(click.Argument):
    """The same for a kind of workload."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        name, args = super().handle_parse_result(ctx, opts, args)
        if isinstance(name, str) and not ctx.resilient_parsing:
            from stado.cli.context import profile_folder

            _apply(ctx, profile_folder().kinds.read(name), opts)
        return name, args


def known_profiles(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """For a shell that completes what is typed."""
    return [name for name in _names(kinds=False) if name.startswith(incomplete)]


def known_kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """For a shell that completes what is typed."""
    return [name for name in _names(kinds=True) if name.startswith(incomplete)]


def _names(*, kinds: bool) -> list[str]:
    from stado.cli.context import profile_folder
    from stado.errors import StadoError

    try:
        folder = profile_folder()
        return (folder.kinds if kinds else folder).names()
    except StadoError:
        return []


def _apply(ctx: click.Context, profile: Profile, typed: Mapping[str, Any]) -> None:
    from stado.core.profiles import remaining
    from stado.core.stated import FIELDS

    names = {field: name for name, field in FIELDS.items()}
    explicit = {names.get(field, field): value for field, value in typed.items()}
    left = remaining(profile.options, explicit)
    ctx.meta[VARIABLES] = left.pop("env", {})
    ctx.meta[SECRETS] = left.pop("secret_env", {})
    ctx.meta[_COMMAND] = profile.command
    ctx.default_map = {
        **(ctx.default_map or {}),
        **{FIELDS.get(name, name): _typed(name, value) for name, value in left.items()},
    }


_TYPED_AS_TEXT = ("gpus", "max_lease_losses", "timeout", "idle_timeout", "retry_delay")


def _typed(name: str, value: Any) -> Any:
    """As the option takes it from who types."""
    if isinstance(value, Mapping):
        return [f"{key}={text}" for key, text in value.items()]
    if name in ("not_before", "deadline_at"):
        return value.isoformat()
    return str(value) if name in _TYPED_AS_TEXT else value
