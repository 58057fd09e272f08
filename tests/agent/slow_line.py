"""A store behind a line that lets so many bytes a second through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stado.ports import Clock
from stado.storage.port import FileDigest, Store


class SlowLine:
    """`ranges` are those that were asked for, `downloads` the keys that were fetched at once."""

    def __init__(self, inner: Store, clock: Clock, *, bytes_per_second: float) -> None:
        self._inner = inner
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self.ranges: list[tuple[int, int]] = []
        self.downloads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.ranges.append((start, length))
        data = self._inner.get_range(key, start, length)
        self._clock.sleep(len(data) / self._bytes_per_second)
        return data

    def download(self, key: str, path: Path) -> FileDigest:
        self.downloads.append(key)
        digest = self._inner.download(key, path)
        self._clock.sleep(digest.size / self._bytes_per_second)
        return digest
