"""A figure, its limit, and the table of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement. `limit` is what it may be at most (or at least, if `at_least`); None: it
    is shown for comparison."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def line(self) -> str:
        if self.limit is None:
            bound = ""
        else:
            bound = f"{'at least' if self.at_least else 'at most'} {self.limit:g}"
        verdict = "" if self.limit is None else ("ok" if self.met else "MISSED")
        return f"{self.name:58} {self.value:9.2f} {self.unit:12} {bound:16} {verdict:7} {self.note}"


def show(title: str, figures: list[Figure]) -> None:
    sys.stdout.write(f"\n{title}\n")
    for figure in figures:
        sys.stdout.write(f"  {figure.line().rstrip()}\n")
    sys.stdout.flush()
