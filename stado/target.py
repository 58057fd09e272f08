"""The options by which every program is told which store it works on.

Imported by each command's definition, so that it must stay light: click, and nothing of ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import click


class Target(NamedTuple):
    """Which store the options of a command name; None: they say nothing."""

    store: str | None
    endpoint: str | None
    region: str | None


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
