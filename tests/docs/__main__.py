"""Runs the commands of a page and prints it all as it went: `python -m tests.docs docs/walk.md`.

For who writes one. Lines that begin with `!` say what differs from what the page shows.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.pages import read_page
from tests.docs.terminal import Terminal, run

_STEP_SECONDS = 300


def main() -> int:
    page = read_page(Path(sys.argv[1]))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        terminal = Terminal(home)
        try:
            for step in page.steps:
                sys.stdout.write(f"$ {step.command}\n")
                sys.stdout.flush()
                said = run(terminal, step, seconds=_STEP_SECONDS)
                sys.stdout.write(said)
                difference = step.difference(said, terminal.exit_code)
                if difference is not None:
                    wrong += 1
                    sys.stdout.write("".join(f"! {line}\n" for line in difference.splitlines()))
        finally:
            terminal.close()
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
