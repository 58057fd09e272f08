"""Ranks the runs of a sweep by the results that were downloaded.

Usage: python rank.py results [--expect 27]

Reads <folder>/<job-id>/metrics.json of each job. When results are missing it names them and
ends with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMANDS = Path(__file__).with_name("commands.txt")


@dataclass(frozen=True, slots=True)
class Run:
    """What one job measured."""

    job: str
    model: str
    params: Mapping[str, Any]
    accuracy: float
    f1_macro: float
    fit_seconds: float


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="rank.py")
    parser.add_argument("folder", type=Path, help="where `stado results` put the jobs' folders")
    parser.add_argument("--expect", type=int, default=None, help="runs (default: all of the sweep)")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        print(f"rank.py: there is no folder {options.folder}", file=sys.stderr)
        return 1
    runs, unread = read_runs(options.folder)
    print_ranking(sorted(runs, key=lambda run: (-run.accuracy, -run.f1_macro, run.job)))
    expected = count_commands() if options.expect is None else options.expect
    return report_missing(len(runs), expected, unread)


def read_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """The runs, and a line for each job folder that holds no readable metrics."""
    runs, unread = [], []
    for job in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            runs.append(read_run(job))
        except FileNotFoundError:
            unread.append(f"{job.name}: no metrics.json")
        except (ValueError, KeyError, TypeError) as error:
            unread.append(f"{job.name}: metrics.json cannot be read: {error!r}")
    return runs, unread


def read_run(folder: Path) -> Run:
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return Run(
        job=folder.name,
        model=str(metrics["model"]),
        params=dict(metrics["params"]),
        accuracy=float(metrics["accuracy"]),
        f1_macro=float(metrics["f1_macro"]),
        fit_seconds=float(metrics["fit_seconds"]),
    )


def count_commands() -> int:
    lines = COMMANDS.read_text(encoding="utf-8").splitlines()
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def print_ranking(runs: Sequence[Run]) -> None:
    rows = [("RANK", "ACCURACY", "F1", "FIT", "MODEL", "PARAMETERS", "JOB")]
    for rank, run in enumerate(runs, start=1):
        parameters = " ".join(f"{name}={value}" for name, value in run.params.items())
        scores = (f"{run.accuracy:.4f}", f"{run.f1_macro:.4f}", f"{run.fit_seconds:.2f}s")
        rows.append((str(rank), *scores, run.model, parameters or "-", run.job))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def report_missing(found: int, expected: int, unread: Sequence[str]) -> int:
    if found >= expected:
        print(f"\n{found} of {expected} runs ranked")
        return 0
    print(f"\nrank.py: {found} of {expected} runs have results; missing:", file=sys.stderr)
    for line in unread:
        print(f"  {line}", file=sys.stderr)
    absent = expected - found - len(unread)
    if absent > 0:
        print(f"  {absent} without a folder: `stado status` shows how they ended", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
