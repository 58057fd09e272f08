"""Which jobs a command is about to make: the words of its COMMAND, a file of them, an array."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from stado.cli.job_options import request_of, shared_of
from stado.cli.profile_option import command_of_profile

if TYPE_CHECKING:
    from stado.core.spec import Request

STANDARD_INPUT = "-"

_OPTIONS = (
    click.option(
        "--batch",
        metavar="FILE",
        help="Submit each line of FILE as a job ('-': standard input); COMMAND is then ignored.",
    ),
    click.option(
        "--array",
        metavar="NUMBERS",
        help="Submit COMMAND as a job a number (0-99, 0-99:10, 1,3,7): {index} in it, and "
        "$STADO_ARRAY_INDEX, is the number. 0-99%5: five run at a time.",
    ),
)


def which_jobs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options, as `batch` and `array`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def request_asked(
    words: tuple[str, ...],
    *,
    batch: str | None,
    array: str | None,
    asked: Mapping[str, Any],
    example: str,
) -> Request:
    """What the options and the words ask for: everything that needs no store is checked here,
    before anything is written. `example`: what stands before a command, for who gave none. Raises
    `Refused`, naming the value and the remedy."""
    if array is not None and batch is not None:
        raise click.UsageError("--array and --batch both say which jobs there are: give one.")
    if array is not None:
        return _array(_command(words, example), array, asked)
    return _request(words, batch, asked, example)


def _request(
    words: tuple[str, ...], batch: str | None, asked: Mapping[str, Any], example: str
) -> Request:
    from stado.cli import render
    from stado.core.spec import parse_batch

    if batch is None:
        return request_of([_command(words, example)], asked, batch=False)
    if any(words):
        render.tell(f"stado: --batch is given: the command {words[0]!r} is not submitted")
    name = "standard input" if batch == STANDARD_INPUT else batch
    return request_of(parse_batch(read_batch_file(batch), name), asked, batch=True)


def _array(command: str, array: str, asked: Mapping[str, Any]) -> Request:
    from stado.core.arrays import make_array, parse_array

    return make_array(command, parse_array(array), shared_of(asked))


def _command(words: tuple[str, ...], example: str) -> str:
    """What is typed, or else what the profile runs."""
    from stado.errors import Refused

    of_profile = command_of_profile()
    if not words and of_profile is not None:
        return of_profile
    if not words:
        raise Refused("command_missing", f"no command: {example} 'python train.py'")
    if len(words) > 1:
        raise Refused(
            "command_not_quoted",
            f"the command must be one argument and {words[1]!r} is another: "
            f"quote all of it, such as '{' '.join(words)}'",
        )
    return words[0]


def read_batch_file(path: str) -> bytes:
    """Not more than twice what is ever taken: comments have room, a device has an end."""
    from stado.core.spec import REQUEST_BYTES_MAX
    from stado.errors import Refused

    limit = 2 * REQUEST_BYTES_MAX
    try:
        with nullcontext(_standard_input()) if path == STANDARD_INPUT else open(path, "rb") as file:
            data: bytes = file.read(limit + 1)
    except OSError as error:
        raise Refused(
            "batch_unreadable", f"batch {path!r} cannot be read: {error.strerror}"
        ) from None
    if len(data) > limit:
        raise Refused("batch_too_large", f"batch {path!r} has more than {limit} bytes: split it")
    return data


def _standard_input() -> Any:
    return sys.stdin.buffer
