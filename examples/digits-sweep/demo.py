"""Runs the sweep from nothing to its ranking, on this machine alone: `make demo`.

Usage: python demo.py [--store-from-environment] [--folder .demo]

Makes a store in the folder (or in the one that STADO_STORE names), starts `stado up`, submits the
batch, waits, downloads the results and ranks them. Whatever it started it also stops, when it is
interrupted or fails as well.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import psutil

EXAMPLE = Path(__file__).resolve().parent
RUN_ID = "digits-sweep"

MARK = "DIGITS_SWEEP_DEMO"
"""A variable that every process of the demo inherits, jobs included: by it they are found."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

STOP_SECONDS = 15.0
"""Idle programs leave at once; whoever takes longer than this is killed."""


class StepFailedError(Exception):
    """A command ended with another code than 0."""

    def __init__(self, argv: Sequence[str], code: int) -> None:
        super().__init__(f"`{shlex.join(argv)}` ended with {code}")
        self.code = code if 0 < code < 128 else 1


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    take_interruptions()
    folder = empty_folder(options.folder)
    try:
        run_demo(folder, demo_environment(folder, options.store_from_environment))
    except StepFailedError as error:
        print(f"demo.py: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("demo.py: interrupted; everything was stopped", file=sys.stderr)
        return 130
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.py")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="emptied first")
    parser.add_argument(
        "--store-from-environment",
        action="store_true",
        help="use the empty bucket that STADO_STORE and STADO_ENDPOINT name",
    )
    return parser.parse_args(arguments)


def run_demo(folder: Path, environment: Mapping[str, str]) -> None:
    results = str(folder / "results")
    batch = ["--batch", str(EXAMPLE / "commands.txt"), "--host-dir", str(EXAMPLE)]
    run(["stado", "init", environment["STADO_STORE"]], environment)
    with worker(folder, environment):
        run(["stado", "submit", "--run-id", RUN_ID, *batch, "--wait"], environment)
        run(["stado", "results", RUN_ID, results], environment)
    run([sys.executable, str(EXAMPLE / "rank.py"), results], environment)


def demo_environment(folder: Path, store_from_environment: bool) -> dict[str, str]:
    """The user's own settings of stado don't reach the demo, nor the demo their stores."""
    environment = dict(os.environ)
    if not store_from_environment:
        for name in [name for name in environment if name.startswith("STADO_")]:
            del environment[name]
        environment["STADO_STORE"] = str(folder / "store")
    elif not environment.get("STADO_STORE"):
        raise SystemExit("demo.py: --store-from-environment, but STADO_STORE is not set")
    config = folder / "config.toml"
    config.touch()
    return {**environment, "STADO_CONFIG": str(config), MARK: secrets.token_hex(8)}


def empty_folder(folder: Path) -> Path:
    """Refuses a folder with anything in it that no demo has made."""
    folder = folder.resolve()
    sign = folder / "made-by-demo"
    if folder.exists():
        if any(folder.iterdir()) and not sign.exists():
            raise SystemExit(f"demo.py: {folder} is not from a demo: name another with --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    sign.touch()
    return folder


def run(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    print(f"\n$ {shlex.join(argv)}", flush=True)
    process = subprocess.Popen(argv, env=environment)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        # Ctrl-C has reached it too, a plain SIGTERM to us has not.
        process.terminate()
        end(process)
        raise
    if code != 0:
        raise StepFailedError(argv, code)


@contextmanager
def worker(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """`stado up` in a session of its own, so that Ctrl-C reaches it through us, in order."""
    argv = ["stado", "up", "--work-dir", str(folder / "work")]
    log = folder / "up.log"
    print(f"\n$ {shlex.join(argv)} >{log} 2>&1 &", flush=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
        if process.poll() is not None:
            raise StepFailedError(argv, process.returncode)
        process.terminate()
        end(process)
    finally:
        # Interrupted or failed: whatever runs is of no more use to anybody. A second Ctrl-C must
        # not leave it running.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        kill_all(environment[MARK])
        end(process)
        take_interruptions()


def end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def kill_all(mark: str) -> None:
    """Supervisors and their jobs outlive the agent on purpose: so they are looked for. Again,
    until there are none, since one may start another meanwhile."""
    for _ in range(20):
        left = marked_processes(mark)
        if not left:
            return
        for process in left:
            kill(process)
        psutil.wait_procs(left, timeout=1)


def marked_processes(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def take_interruptions() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, interrupt)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
