"""`stado version`."""

from __future__ import annotations

import click

from stado.cli.context import json_option


def version_line() -> str:
    return f"stado {version_number()}"


def version_number() -> str:
    """As it was installed; a source tree that was not says so."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of("stado")
    except PackageNotFoundError:
        return "0+not.installed"


@click.command()
@json_option
def version(*, as_json: bool) -> None:
    """Print the version."""
    from stado.cli import render

    if as_json:
        render.print_json({"version": version_number()})
    else:
        render.print_line(version_line())
