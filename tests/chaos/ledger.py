"""What the run knows of itself: what clients were told, and what was done to whom."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class CancelTold:
    """A cancel that a client was told to stand."""

    job_id: str
    epoch: int


@dataclass
class Ledger:
    """Written by several threads, each time under the lock."""

    told: dict[str, list[list[str]]] = field(default_factory=dict)
    """Each answer to a submission of a run: the ids, in order."""
    cancels: list[CancelTold] = field(default_factory=list)
    killed_commands: list[str] = field(default_factory=list)
    """Jobs whose command's leader we killed, which is an outcome of its own."""
    counts: Counter[str] = field(default_factory=Counter)
    """What was done, by its name."""
    surprises: list[str] = field(default_factory=list)
    """What ended, or answered, as it must not."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def note_told(self, run_id: str, job_ids: list[str]) -> None:
        with self._lock:
            self.told.setdefault(run_id, []).append(job_ids)

    def note_cancel(self, job_id: str, epoch: int) -> None:
        with self._lock:
            self.cancels.append(CancelTold(job_id, epoch))

    def note_killed_command(self, job_id: str) -> None:
        with self._lock:
            self.killed_commands.append(job_id)

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def note_surprise(self, text: str) -> None:
        with self._lock:
            self.surprises.append(text)

    def find_job(self, run_id: str, index: int) -> str | None:
        """None until somebody was told."""
        with self._lock:
            answers = self.told.get(run_id)
            return answers[0][index] if answers else None

    def write(self, path: Path) -> None:
        with self._lock:
            fields = {**vars(self), "cancels": [asdict(told) for told in self.cancels]}
            del fields["_lock"]
            path.write_text(json.dumps(fields, indent=1))
