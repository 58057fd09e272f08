"""`stado completion`: lets a shell complete what people begin to type."""

from __future__ import annotations

import click

from stado.cli.context import login_shell

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, *, shell: str | None) -> None:
    """Print the script that completes commands, options and names of contexts in your shell.
    SHELL is bash, zsh or fish; the one that $SHELL names when it is not given.

    For this session, or at the end of ~/.bashrc or ~/.zshrc for every one:

    \b
      eval "$(stado completion bash)"
      eval "$(stado completion zsh)"       # after compinit

    For fish, once:

    \b
      stado completion fish > ~/.config/fish/completions/stado.fish

    Completing reads the config file and nothing else: no store is asked.
    """
    from click.shell_completion import get_completion_class

    from stado.cli import render

    complete = get_completion_class(shell or _guessed())
    assert complete is not None
    program = ctx.find_root()
    name = program.info_name or "stado"
    script = complete(program.command, {}, name, f"_{name.upper()}_COMPLETE").source()
    render.print_bytes(script.encode())


def _guessed() -> str:
    from stado.errors import Refused

    shell = login_shell()
    if shell not in _SHELLS:
        known = ", ".join(_SHELLS)
        told = f"SHELL names {shell!r}" if shell else "SHELL is not set"
        raise Refused("shell_unknown", f"{told}: name one of {known}, as `stado completion bash`")
    return shell
