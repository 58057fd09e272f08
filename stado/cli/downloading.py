"""How far a download has come: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stado.cli import render

if TYPE_CHECKING:
    from rich.progress import Progress

    from stado.core.records import OutputFile
    from stado.jobs.downloads import Sight

_BAR_WIDTH = 20
_LOOKS_A_SECOND = 4


class Progressing:
    """What has come of the files that were asked for, and of those that are on their way."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._whole = 0
        self._whole_bytes = 0
        self._coming: dict[str, Path] = {}

    def begin(self, files: Sequence[OutputFile]) -> None:
        self._sizes |= {file.key: file.size for file in files}

    def fetch(self, file: OutputFile, temporary: Path) -> None:
        self._coming[file.key] = temporary

    def have(self, file: OutputFile) -> None:
        self._coming.pop(file.key, None)
        self._whole += 1
        self._whole_bytes += file.size

    @property
    def total_bytes(self) -> int:
        return sum(list(self._sizes.values()))

    def here_bytes(self) -> int:
        """Of half files what the disk says: pieces come in any order."""
        return self._whole_bytes + sum(map(_bytes_in, list(self._coming.values())))

    def files_text(self) -> str:
        return f"{self._whole:,}/{len(self._sizes):,} files"


def _bytes_in(path: Path) -> int:
    try:
        status = path.stat()
    except OSError:
        return 0
    return min(status.st_size, status.st_blocks * 512)


@contextmanager
def shown_download() -> Iterator[Sight]:
    """Gives who is to look on."""
    progressing = Progressing()
    if not render.stderr_is_terminal():
        yield progressing
        return
    with _bar(progressing):
        yield progressing


def _bar(progressing: Progressing) -> Progress:
    from rich.console import RenderableType
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    class Looking(Progress):
        """Looks each time that it is drawn."""

        def get_renderables(self) -> Iterator[RenderableType]:
            for task in self.tasks:
                self.update(
                    task.id,
                    total=progressing.total_bytes or None,
                    completed=progressing.here_bytes(),
                    description=progressing.files_text(),
                )
            yield from super().get_renderables()

    bar = Looking(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=_BAR_WIDTH),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        console=render.rich_console(stderr=True),
        refresh_per_second=_LOOKS_A_SECOND,
        transient=True,
    )
    bar.add_task("", total=None)
    return bar
