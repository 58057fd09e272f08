"""The options by which a program is told what a host gives to jobs.

Imported by each command's definition, so that it must stay light: click, and nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--consumer-id",
        metavar="NAME",
        help="Name of the agent in the store. Default: local@HOST.",
    ),
    click.option(
        "--work-dir",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Where jobs work. Default: ~/.local/state/stado.",
    ),
    click.option(
        "--cpu",
        type=click.FloatRange(min=0, min_open=True),
        metavar="CORES",
        help="Cores to give to jobs. Default: all.",
    ),
    click.option(
        "--memory-gb",
        type=click.FloatRange(min=0, min_open=True),
        metavar="GIB",
        help="GiB of memory to give to jobs. Default: what is free.",
    ),
    click.option(
        "--no-accelerators",
        is_flag=True,
        help="Leave this host's GPUs alone. Default: all that its driver tells of.",
    ),
    click.option(
        "--label",
        envvar="STADO_LABELS",
        multiple=True,
        metavar="KEY=VALUE",
        help="What jobs may ask of their host (repeatable). [env: STADO_LABELS, several with "
        "blanks]",
    ),
    click.option("--machine-type", metavar="TYPE", help="What kind of machine this is."),
    click.option(
        "--provider", metavar="NAME", help="Whose machine this is. Default: local, one's own."
    ),
    click.option("--spot", is_flag=True, help="This machine can be taken away at any moment."),
    click.option(
        "--price-per-hour",
        type=click.FloatRange(min=0, min_open=True),
        metavar="DOLLARS",
        help="What it costs, for jobs that state how much it may. Default: nothing.",
    ),
    click.option(
        "--docker",
        metavar="PROGRAM",
        help="Client of the engine for jobs with an image; 'none': leave them to other hosts. "
        "Default: docker, where there is one.",
    ),
    click.option(
        "--max-run-seconds",
        type=click.IntRange(min=1, max=315_360_000),
        metavar="SECONDS",
        help="End what runs here for longer: the job has failed. Default: no limit.",
    ),
    click.option(
        "--secrets-dir",
        envvar="STADO_SECRETS_DIR",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Folder of secrets for jobs: ITEM/FIELD, mode 0600. [env: STADO_SECRETS_DIR]",
    ),
    click.option(
        "--secrets-from",
        envvar="STADO_SECRETS_FROM",
        type=click.Choice(["aws", "gcp"]),
        help="Service of secrets for jobs, asked as this host. [env: STADO_SECRETS_FROM]",
    ),
    click.option(
        "--secrets-endpoint",
        envvar="STADO_SECRETS_ENDPOINT",
        metavar="URL",
        help="Where that service is. Default: its own. [env: STADO_SECRETS_ENDPOINT]",
    ),
    click.option(
        "--allow-secret",
        envvar="STADO_ALLOW_SECRETS",
        multiple=True,
        metavar="PATTERN",
        help="Items that jobs may ask for, as in 'team/*' (repeatable). Default: none. "
        "[env: STADO_ALLOW_SECRETS, several with blanks]",
    ),
)

_WORKER_OPTIONS = (
    click.option(
        "--poll-seconds",
        type=click.FloatRange(min=0.05),
        metavar="SECONDS",
        help="How often an idle agent looks, at the slowest. Default: 0.5 on a directory, else 5.",
    ),
    click.option(
        "--log-limit-mb",
        type=click.FloatRange(min=1),
        metavar="MIB",
        default=100.0,
        show_default=True,
        help="MiB of a job's log that are kept: its first quarter, and its end.",
    ),
    click.option(
        "--checkpoint-mb-per-second",
        type=click.FloatRange(min=0.01),
        metavar="MIB",
        help="MiB a second that each job's checkpoints are uploaded with, at most. "
        "Default: as fast as the store takes them.",
    ),
    click.option(
        "--disk-reserve-gb",
        type=click.FloatRange(min=0),
        metavar="GIB",
        help="GiB that jobs must leave free on the disk of the work folder to be let in. "
        "Default: 1, or a twentieth of a small disk.",
    ),
    click.option(
        "--cache-gb",
        type=click.FloatRange(min=0),
        metavar="GIB",
        help="GiB of inputs that are kept for further jobs. Default: 20, or a tenth of a "
        "smaller disk.",
    ),
)


def host_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what says where jobs work, what they get, what the host is, and what concerns
    secrets."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what says how an agent goes about its work."""
    for option in reversed(_WORKER_OPTIONS):
        command = option(command)
    return command
