"""How far a submission has come: a bar on a terminal, else a line when the counts change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stado.cli import render, views

if TYPE_CHECKING:
    from stado.core.states import State

Show = Callable[["dict[str, State]"], None]


@contextmanager
def shown_progress(total: int) -> Iterator[Show]:
    """Gives what is to be called with the states of the jobs at each look."""
    if render.stderr_is_terminal():
        with _bar(total) as show:
            yield show
    else:
        yield _lines(total)


def _lines(total: int) -> Show:
    last = ""

    def show(states: dict[str, State]) -> None:
        nonlocal last
        ended = sum(state.terminal for state in states.values())
        counts = views.count_text(states.values())
        line = counts if total == 1 else f"{ended} of {total} ended: {counts}"
        if line != last and states:
            render.tell(line)
            last = line

    return show


@contextmanager
def _bar(total: int) -> Iterator[Show]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=render.rich_console(stderr=True),
        transient=True,
        auto_refresh=False,
    ) as progress:
        task = progress.add_task("queued", total=total)

        def show(states: dict[str, State]) -> None:
            ended = sum(state.terminal for state in states.values())
            counts = views.count_text(states.values())
            progress.update(task, completed=ended, description=counts, refresh=True)

        yield show
