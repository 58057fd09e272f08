"""A directory store that is away: its folder is moved, as a file system is that is unmounted."""

from __future__ import annotations

from pathlib import Path


class MovedDirectory:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._elsewhere = folder.with_name(f"{folder.name}-away")

    def take_away(self) -> None:
        self._folder.rename(self._elsewhere)

    def bring_back(self) -> None:
        """Fails where somebody has made the folder anew, and with it a second, empty store."""
        self._elsewhere.rename(self._folder)
