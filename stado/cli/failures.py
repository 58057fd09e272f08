"""What went wrong, as a sentence for people on stderr and an exit code for programs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from stado.cli import exits
from stado.errors import Ambiguous, StadoError, Unavailable


class Interrupted(Exception):
    """Ctrl-C, where there is something to say about what goes on without us. Its arguments are
    lines."""


class PipeClosed(Exception):
    """Whoever read our output has gone. Not an `OSError`, which click would answer itself."""


@contextmanager
def going_on(text: str, *further: str) -> Iterator[None]:
    """Ctrl-C within ends with `text`: what goes on; and with further lines: a command each. Only
    the first is heeded: another one could come while that is still on its way here."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _heed_once)
    try:
        yield
    except KeyboardInterrupt:
        _heed_no_more_interrupts()
        raise Interrupted(text, *further) from None
    finally:
        if before is not None and signal.getsignal(signal.SIGINT) is _heed_once:
            signal.signal(signal.SIGINT, before)


def _heed_once(*_: object) -> None:
    _heed_no_more_interrupts()
    raise KeyboardInterrupt


def guarded(call: Callable[[], object]) -> int:
    """The exit code of a command line; what it raises is told on stderr."""
    _have_streams()
    _tolerate_any_text()
    try:
        code = _run(call)
        _flush()
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        code = exits.PIPE_CLOSED
    if code == exits.PIPE_CLOSED:
        _drop_stdout()
    return code


def _run(call: Callable[[], object]) -> int:
    try:
        result = call()
        return result if isinstance(result, int) else exits.OK
    except Interrupted as error:
        first, *further = error.args
        _begin_line()
        _say(first, *further)
        return exits.INTERRUPTED
    except (KeyboardInterrupt, click.Abort):
        _heed_no_more_interrupts()
        _begin_line()
        _say("interrupted")
        return exits.INTERRUPTED
    except StadoError as error:
        _say(" ".join([_stado_sentence(error), *getattr(error, "__notes__", [])]))
        return exits.of_error(error)
    except click.ClickException as error:
        _say(_click_sentence(error))
        return exits.REFUSED
    except (BrokenPipeError, PipeClosed):
        return exits.PIPE_CLOSED
    except OSError as error:
        _say(_os_sentence(error))
        return exits.FAILED
    except Exception as error:  # the last resort: never a traceback unasked
        from stado.cli.context import debugging

        if debugging():
            raise
        _say(
            f"{type(error).__name__}: {error} (a mistake of stado's: STADO_DEBUG=1 shows "
            "where it happened)"
        )
        return exits.INTERNAL


def _heed_no_more_interrupts() -> None:
    """We are leaving already: a second Ctrl-C shall not spoil what is being said."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _begin_line() -> None:
    """A terminal shows the Ctrl-C where the cursor was."""
    if sys.stderr.isatty():
        click.echo(err=True)


def _say(sentence: str, *further: str) -> None:
    from stado.cli.render import tell

    tell(f"stado: {sentence}")
    for line in further:
        tell(line)


def _stado_sentence(error: StadoError) -> str:
    """Of a store that is away the key says little: it comes last."""
    if not isinstance(error, Ambiguous | Unavailable) or not error.key:
        return str(error)
    what = (
        "the store cannot be used" if isinstance(error, Unavailable) else "the outcome is unknown"
    )
    return f"{what}: {str(error).removeprefix(f'{error.key}: ')} (key {error.key})"


def _click_sentence(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        stop = "" if message.endswith((".", "?")) else "."
        return f"{message}{stop} `{error.ctx.command_path} --help` shows how."
    return message


def _os_sentence(error: OSError) -> str:
    why = error.strerror or type(error).__name__
    return f"{error.filename}: {why}" if error.filename else why


def _have_streams() -> None:
    """A stream that was closed before we began is one that nobody reads. Opening it takes its
    place, too: no file of ours shall be written to as if it were stdout."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _tolerate_any_text() -> None:
    """What the terminal's encoding cannot show costs a mark, never the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _flush() -> None:
    sys.stdout.flush()


def _drop_stdout() -> None:
    """Nobody reads any more: the interpreter's own flush at exit shall not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
