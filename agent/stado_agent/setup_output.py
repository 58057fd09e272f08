"""What programs print that prepare a job: into the job's log, without passwords of addresses, and
its last lines kept to tell why one failed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

_LINES_KEPT = 20
_LINE_BYTES_MAX = 8192
_SECRET_IN_ADDRESS = re.compile(rb"(?<=://)[^/@\s'\"]+@")
_LINE_END = re.compile(rb"[\r\n]+")


class SetupOutput:
    """A sink that passes on whole lines."""

    def __init__(self, append: Callable[[memoryview], None]) -> None:
        self._append = append
        self._rest = b""
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)

    def __call__(self, data: memoryview) -> None:
        self._rest += bytes(data)
        while (end := _LINE_END.search(self._rest)) is not None:
            line, self._rest = self._rest[: end.end()], self._rest[end.end() :]
            self._pass_on(line)
        if len(self._rest) > _LINE_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """What has no line end yet, as a line."""
        if self._rest:
            line, self._rest = self._rest, b""
            self._pass_on(line + b"\n")

    @property
    def lines(self) -> list[str]:
        return list(self._lines)

    def _pass_on(self, line: bytes) -> None:
        line = _SECRET_IN_ADDRESS.sub(b"", line)
        self._lines.append(line.decode("utf-8", "replace").strip())
        self._append(memoryview(line))
