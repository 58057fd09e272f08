"""What a command found, ready to be shown: to programs as JSON, to people as lines and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stado.cli import render


@dataclass(frozen=True, slots=True)
class Shown:
    """The same answer twice: who asks for JSON gets `fields` and nothing else."""

    fields: Callable[[], Mapping[str, Any]]
    """Made when they are asked for: they have all rows, of which lines show the first."""
    lines: Sequence[str] = ()
    """For stdout. What a store holds is cleaned already: lines may carry colours."""
    notes: Sequence[str] = ()
    """For people, on stderr."""

    def show(self, *, as_json: bool) -> None:
        if as_json:
            render.print_json(self.fields())
            return
        for line in self.lines:
            render.print_styled(line)
        for note in self.notes:
            render.tell(note)
