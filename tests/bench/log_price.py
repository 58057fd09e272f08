"""What an hour of a job that prints all the time costs in requests, at list prices of S3 standard:
of the agent's own shipper and signs of life, on simulated time and a store that counts."""

from __future__ import annotations

from pathlib import Path

from stado.storage.observe import Requests
from tests.agent.talking import dollars, talk
from tests.bench.figures import Figure

_LIMIT_DOLLARS = 0.001
_THOUSANDTHS = 1000


def measure(folder: Path) -> list[Figure]:
    """10 kB a second; the hour after the first is what a long job pays again and again."""
    folder.mkdir()
    quiet = talk(folder / "quiet", hours=2)
    followed = talk(folder / "followed", followed=True)
    signs = quiet.signs
    return [
        *_figures("log, first hour, nobody follows", quiet.log[0], _LIMIT_DOLLARS),
        *_figures("log, each later hour, nobody follows", quiet.log[1], _LIMIT_DOLLARS),
        *_figures("log, first hour, followed all the time", followed.log[0], None),
        *_figures("signs of life, with a log or without", signs, None),
        Figure(
            "log and signs together, first hour, nobody follows",
            (dollars(quiet.log[0]) + dollars(signs)) * _THOUSANDTHS,
            "$ / 1000",
        ),
    ]


def _figures(name: str, requests: Requests, limit: float | None) -> list[Figure]:
    return [
        Figure(f"{name}: writes", requests.writes, "requests"),
        Figure("  reads", requests.reads, "requests"),
        Figure(
            "  price",
            dollars(requests) * _THOUSANDTHS,
            "$ / 1000",
            limit=None if limit is None else limit * _THOUSANDTHS,
        ),
    ]
