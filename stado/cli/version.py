"""`stado version`."""

from __future__ import annotations

import click

from stado.cli.context import json_option


def version_line() -> str:
    from stado.version import VERSION

    return f"stado {VERSION}"


@click.command()
@json_option
def version(*, as_json: bool) -> None:
    """Print the version."""
    from stado.cli import render
    from stado.version import VERSION

    if as_json:
        render.print_json({"version": VERSION})
    else:
        render.print_line(version_line())
