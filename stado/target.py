"""The options by which every program is told which store it works on.

Imported by each command's definition, so that it must stay light: click, and nothing of ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Target(NamedTuple):
    """Which store the options of a command name; None: they say nothing."""

    store: str | None
    endpoint: str | None
    region: str | None
    context: str | None = None


def folder_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Lets the shell complete the path of a store that is a directory."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def context_names(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Names for the shell to complete. The program tells them by its `obj`, if it knows them:
    this module reads no file."""
    names: Iterable[str] = context.obj() if callable(context.obj) else ()
    return [name for name in names if name.startswith(incomplete)]


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--store`, `--endpoint`, `--region` and `--context`; the command gets them as
    `target`."""

    @click.option(
        "--store",
        metavar="STORE",
        shell_complete=folder_names,
        help="Directory, s3://bucket/prefix or gs://bucket/prefix. [env: STADO_STORE]",
    )
    @click.option(
        "--endpoint",
        metavar="URL",
        help="Server of the bucket, other than AWS or Google. [env: STADO_ENDPOINT]",
    )
    @click.option("--region", metavar="NAME", help="Region of the bucket. [env: STADO_REGION]")
    @click.option(
        "--context",
        metavar="NAME",
        shell_complete=context_names,
        help="A store of the config file (`stado context`). [env: STADO_CONTEXT]",
    )
    @functools.wraps(command)
    def with_target(
        *,
        store: str | None,
        endpoint: str | None,
        region: str | None,
        context: str | None,
        **options: Any,
    ) -> Any:
        return command(target=Target(store, endpoint, region, context), **options)

    return with_target
