"""What it costs to start the command line, as a multiple of importing click; and to import stado,
as a multiple of Python alone."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.deployment import bench_deployment
from tests.bench.figures import Figure

_ROUNDS = 15
_OF_BYTECODE = {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}


def measure(folder: Path) -> list[Figure]:
    with bench_deployment(folder / "starting") as bench:
        bench.submit(["true"] * 40)
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "stado": [sys.executable, "-c", "import stado"],
            "in a job": [sys.executable, "-c", "import stado; stado.checkpoint, stado.progress"],
            "click": [sys.executable, "-c", "import click"],
            "help": [sys.executable, "-m", "stado.cli.main", "--help"],
            "status": [sys.executable, "-m", "stado.cli.main", "status"],
        }
        environment = _as_installed(bench.environment, folder / "bytecode")
        for argv in commands.values():
            _seconds(argv, environment)
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(_ROUNDS):  # interleaved, so that all meet the same disturbances
            for name, argv in commands.items():
                taken[name].append(_seconds(argv, environment))
    median = {name: statistics.median(values) for name, values in taken.items()}
    floor = Figure("python -c 'import click'", median["click"] * 1000, "ms")
    return [
        Figure("python -c pass", median["python"] * 1000, "ms"),
        Figure("import stado / python -c pass", median["stado"] / median["python"], "x", 1.5),
        Figure(
            "import stado, longer than Python alone",
            (median["stado"] - median["python"]) * 1000,
            "ms",
            50,
        ),
        Figure(
            "import stado, for a job / python -c pass",
            median["in a job"] / median["python"],
            "x",
            2.5,
        ),
        floor,
        Figure("stado --help / import click", median["help"] / median["click"], "x", 1.6),
        Figure(
            "stado status (directory) / import click", median["status"] / median["click"], "x", 4
        ),
    ]


def _as_installed(environment: dict[str, str], bytecode: Path) -> dict[str, str]:
    """What is installed is compiled once, and not at each start, whatever is said of that here."""
    said = {name: value for name, value in os.environ.items() if name not in _OF_BYTECODE}
    return {**said, **environment, "PYTHONPYCACHEPREFIX": str(bytecode)}


def _seconds(argv: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
