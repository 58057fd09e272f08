"""Counts what is sent to a bucket, by what is billed for it.

The adapters tell it of each request as it goes out, below all retries: what is sent twice is billed
twice, and so may be what nobody answered.
"""

from __future__ import annotations

from stado.ports import Tasks
from stado.storage.port import Billed


class RequestMeter:
    """One store's. Safe between threads; a forked copy goes on by itself."""

    def __init__(self, tasks: Tasks) -> None:
        self._lock = tasks.lock()
        self._dear = 0
        self._cheap = 0
        self._received_bytes = 0
        self._sent_bytes = 0

    def send(self, *, dear: int = 0, cheap: int = 0, sent_bytes: int = 0) -> None:
        with self._lock:
            self._dear += dear
            self._cheap += cheap
            self._sent_bytes += sent_bytes

    def receive(self, received_bytes: int) -> None:
        with self._lock:
            self._received_bytes += received_bytes

    def reading(self) -> Billed:
        """Since it was made."""
        with self._lock:
            return Billed(self._dear, self._cheap, self._received_bytes, self._sent_bytes)
