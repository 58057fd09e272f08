"""A large file on its way into a folder, in pieces. Which of them are there is noted beside it, so
that who was interrupted goes on instead of beginning anew.

A note is a hint, for a power cut can keep it and lose its piece: the digest of the whole counts.
"""

from __future__ import annotations

import re
from pathlib import Path

PIECE_BYTES = 8 * 1024 * 1024

_NOTE = re.compile(r"\d{8}")
"""Of one width, so that half a note and the one behind it make none."""


class HalfFile:
    """One that may have been begun before."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._size = size
        self._notes = path.with_name(f"{path.name}.pieces")
        there = self._noted() if path.is_file() else set()
        self.begun = bool(there)
        """Whether some of it was there."""
        self.missing = [number for number in self._numbers() if number not in there]
        """Numbers of pieces, ascending."""
        if not there:
            self.begin_anew()

    def begin_anew(self) -> None:
        self.remove()
        self.path.touch()
        self.missing = list(self._numbers())

    def place(self, number: int) -> tuple[int, int]:
        """Where a piece begins, and its size, in bytes."""
        start = number * PIECE_BYTES
        return start, min(PIECE_BYTES, self._size - start)

    def put(self, number: int, data: bytes) -> None:
        """From any thread. Raises `OSError`."""
        with self.path.open("r+b") as file:
            file.seek(self.place(number)[0])
            file.write(data)
        with self._notes.open("a") as notes:
            notes.write(f"{number:08d}\n")

    def remove(self) -> None:
        """With its notes: those alone, where it has its name by now."""
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)

    def _numbers(self) -> range:
        return range(-(-self._size // PIECE_BYTES))

    def _noted(self) -> set[int]:
        try:
            lines = self._notes.read_text(errors="replace").split("\n")
        except FileNotFoundError:
            return set()
        return {int(line) for line in lines if _NOTE.fullmatch(line)}
