"""A shell in a home of its own, in which commands run one after another, and nothing of which is
left at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.docs.pages import Ids, Step, differs

ROOT = Path(__file__).parents[2]

_POLL_SECONDS = 0.05
_MARK = "STADO_DOCS_HOME"
"""A variable that all processes of a home inherit."""


class Terminal:
    """`home` becomes the home and the first folder of its user, who is called ada."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._steps = home.parent / "steps"
        self._steps.mkdir()
        self._count = 0
        self.ids = Ids()
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-m"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=home,
            env=environment_of(home),
            start_new_session=True,
        )

    def run(
        self, command: str, *, seconds: float, until: Callable[[str], bool] | None = None
    ) -> str:
        """What it prints, on either stream. Raises `TimeoutError` with that where it does not end
        in time. It is sent SIGINT as soon as what it has said so far is enough for `until`."""
        self._count += 1
        script, output, ended = (
            self._steps / f"{self._count}.{kind}" for kind in ("sh", "out", "end")
        )
        script.write_text(command + "\n")
        before = self._children()
        assert self._shell.stdin is not None
        self._shell.stdin.write(f". {script} > {output} 2>&1 < /dev/null; echo $? > {ended}\n")
        self._shell.stdin.flush()
        if until is not None:
            self._wait(lambda: output.exists() and until(output.read_text()), seconds, output)
            for child in self._children() - before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGINT)
        self._wait(lambda: ended.exists() and bool(ended.read_text()), seconds, output)
        self.exit_code = int(ended.read_text())
        return output.read_text(errors="replace").replace(str(self._home), "/home/ada")

    def _children(self) -> set[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return {child.pid for child in psutil.Process(self._shell.pid).children()}
        return set()

    def _wait(self, condition: Callable[[], bool], seconds: float, output: Path) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                said = output.read_text(errors="replace") if output.exists() else ""
                raise TimeoutError(f"it did not end within {seconds:g} s, and said:\n{said}")
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Kills the shell and all that was started from it, wherever it has gone since."""
        kill_all_of(self._home)
        self._shell.kill()
        self._shell.wait()


def environment_of(home: Path) -> dict[str, str]:
    """Of somebody called ada, and of nothing that is set here."""
    return {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "USER": "ada",
        "PYTHONPATH": ":".join(str(ROOT / part) for part in (".", "agent", "coordinator")),
        _MARK: str(home),
    }


def kill_all_of(home: Path) -> None:
    """Whatever was started in this home and still runs."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == str(home):
                process.kill()


def run(terminal: Terminal, step: Step, *, seconds: float) -> str:
    """A step of a page, with Ctrl-C where that shows one, and with this run's ids."""
    shown = step.until
    until = None if shown is None else lambda said: differs(shown, said) is None
    command = terminal.ids.put_into(step.command)
    said = terminal.run(command, seconds=seconds, until=until)
    terminal.ids.learn(step.shown, said)
    return said
