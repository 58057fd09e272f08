"""What an hour of a job that prints all the time costs in requests, at list prices of S3 standard:
of the agent's own shipper and signs of life, and the coordinator's looks, on simulated time and a
store that counts."""

from __future__ import annotations

import statistics
from pathlib import Path

from stado.storage.observe import Requests
from tests.agent.talking import dollars, talk, waits_of_followers
from tests.bench.figures import Figure

_LIMIT_DOLLARS = 0.001
_WAIT_SECONDS_MAX = 31.0
_THOUSANDTHS = 1000


def measure(folder: Path) -> list[Figure]:
    """10 kB a second; the hour after the first is what a long job pays again and again."""
    folder.mkdir()
    quiet = talk(folder / "quiet", hours=2)
    followed = talk(folder / "followed", followed=True)
    waits = waits_of_followers(folder / "waits")
    return [
        *_figures("log, first hour, nobody follows", quiet.log[0]),
        *_figures("log, each later hour, nobody follows", quiet.log[1]),
        *_figures("signs of life, with a log or without", quiet.signs),
        *_figures("looks of a coordinator at them", quiet.looks),
        _sum("all of it, first hour, nobody follows", quiet.dollars(0), _LIMIT_DOLLARS),
        _sum("all of it, each later hour, nobody follows", quiet.dollars(1), _LIMIT_DOLLARS),
        *_figures("log, first hour, followed all the time", followed.log[0]),
        Figure("until who comes to follow sees fresh lines, median", statistics.median(waits), "s"),
        Figure("  at most", max(waits), "s", _WAIT_SECONDS_MAX),
    ]


def _figures(name: str, requests: Requests) -> list[Figure]:
    return [
        Figure(f"{name}: writes", requests.writes, "requests"),
        Figure("  reads", requests.reads, "requests"),
        _sum("  price", dollars(requests), None),
    ]


def _sum(name: str, price: float, limit: float | None) -> Figure:
    bound = None if limit is None else limit * _THOUSANDTHS
    return Figure(name, price * _THOUSANDTHS, "$ / 1000", bound)
