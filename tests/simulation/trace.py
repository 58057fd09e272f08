"""What happened in a run, line by line: the same lines for the same seed."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from stado.storage.observe import WRITES, Operation
from tests.simulation.kernel import Kernel
from tests.simulation.process import SimProcess
from tests.simulation.weather import Fate

_LOGGERS = ("stado", "stado_agent", "stado_coordinator")


class Trace:
    """Sums up all lines in a digest. `out` gets them as text; None: nobody reads them."""

    def __init__(self, kernel: Kernel, folder: Path, out: TextIO | None = None) -> None:
        self._kernel = kernel
        self._folder = str(folder)
        self._out = out
        self._digest = hashlib.blake2b(digest_size=16)
        self.requests = 0
        self.faults: dict[Fate, int] = {}

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def note(self, who: str, what: str) -> None:
        line = f"{self._kernel.now:11.3f} {who:<24} {what}".replace(self._folder, "")
        self._digest.update(line.encode())
        if self._out is not None:
            self._out.write(line + "\n")

    def note_request(
        self, process: SimProcess, operation: Operation, key: str, fate: Fate, answer: str
    ) -> None:
        self.requests += 1
        if fate is not Fate.FINE:
            self.faults[fate] = self.faults.get(fate, 0) + 1
        shown = operation.upper() if operation in WRITES else operation.value
        weather = "" if fate is Fate.FINE else f"  [{fate}]"
        self.note(name_of(process), f"{shown:<9} {key} -> {answer}{weather}")

    @contextmanager
    def with_logs(self, on_fault: Callable[[str], None]) -> Iterator[None]:
        """Also what the parts of the system log, which nobody else gets meanwhile. `on_fault`
        hears of a pass that failed by an error which is none of ours: it is logged with it."""
        handler = _ToTrace(self._kernel, self, on_fault)
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        before = [(logger.level, logger.propagate) for logger in loggers]
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
        try:
            yield
        finally:
            for logger, (level, propagate) in zip(loggers, before, strict=True):
                logger.removeHandler(handler)
                logger.setLevel(level)
                logger.propagate = propagate


def name_of(process: SimProcess) -> str:
    return f"{process.host.name}/{process.name}:{process.identity.pid}"


class _ToTrace(logging.Handler):
    def __init__(self, kernel: Kernel, trace: Trace, on_fault: Callable[[str], None]) -> None:
        super().__init__()
        self._on_fault = on_fault
        self._kernel = kernel
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        strand = self._kernel.current
        who = name_of(strand.process) if strand is not None else "-"
        message = record.getMessage()
        self._trace.note(who, f"log {message}")
        if record.exc_info and message.startswith("event=pass_failed"):
            self._on_fault(f"{who}: {message}: {record.exc_info[1]!r}")

    def createLock(self) -> None:  # noqa: N802 - the name is the base class's
        """One thread carries all strands, and none waits while it logs."""
        self.lock = None
