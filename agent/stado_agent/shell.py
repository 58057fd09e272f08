"""How a command is given to a shell, and what a strict one says of the line that failed.

Strict means bash, which ends at the first command that fails, also in a pipe, a function or a
substitution, says in the log which line that was, and leaves it in a file for the verdict.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from stado.core.reported import Mask
from stado_agent.small_files import read_beginning

_PLAIN_SHELL = "/bin/sh"
_LINE_SHOWN_MAX = 200
_FAILURE_BYTES_MAX = 4096
_FAILURE = re.compile(r"(?P<line>[0-9]{1,9}) (?P<source>[^\n]*)\n")
_OWN_SOURCES = ("", "environment")
"""What bash calls a command that was given to it as an argument, and functions in that."""

_PROLOGUE = """\
set -eE -o pipefail; \
stado_failed() {{ [[ $BASH_SUBSHELL -gt 0 || $- != *e* ]] || {{ \
printf '%s %s\\n' "$2" "$3" >{failure}; \
printf 'stado: line %s failed with exit code %s: %s\\n' "$2" "$1" "${{4%%$'\\n'*}}" >&2; }}; }}; \
trap 'stado_failed "$?" "$LINENO" "${{BASH_SOURCE[0]-}}" "$BASH_COMMAND"' ERR; \
eval "shift; $1\""""
"""All in one line, so that bash counts the lines of the command from 1."""


def plain_argv(command: str) -> tuple[str, ...]:
    return (_PLAIN_SHELL, "-c", command)


@dataclass(frozen=True, slots=True)
class StrictShell:
    """`bash`: the program. `failure`: a file that it may write, and that nobody else does."""

    bash: str
    failure: Path

    def argv(self, command: str) -> tuple[str, ...]:
        prologue = _PROLOGUE.format(failure=shlex.quote(str(self.failure)))
        return (self.bash, "-c", prologue, "bash", command)

    def prepare(self) -> None:
        """A place for it, without what an earlier command left. Raises `OSError`."""
        self.failure.parent.mkdir(mode=0o700, exist_ok=True)
        self.failure.unlink(missing_ok=True)

    def failed_line(self, command: str, mask: Mask = str) -> str | None:
        """`in line 3: cp a b`, of the command that has just failed; None when it says nothing, as
        after an `exit`. The command may have written anything there, so it is masked."""
        data = read_beginning(self.failure, bytes_max=_FAILURE_BYTES_MAX)
        found = _FAILURE.match((data or b"").decode(errors="replace"))
        return None if found is None else _told(int(found["line"]), mask(found["source"]), command)


def _told(number: int, source: str, command: str) -> str | None:
    if source not in _OWN_SOURCES:
        return f"in line {number} of {_shown(source)}"
    lines = command.split("\n")
    return f"in line {number}: {_shown(lines[number - 1])}" if 0 < number <= len(lines) else None


def _shown(text: str) -> str:
    text = "".join(character for character in text.strip() if character.isprintable())
    return text if len(text) <= _LINE_SHOWN_MAX else f"{text[: _LINE_SHOWN_MAX - 1]}…"
