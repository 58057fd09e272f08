"""What a store's trouble has cost so far, and what is waited for now: for people and logs.

Written by `stado.storage.retry`, in whatever thread a request is made; read by the programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stado.ports import Clock, Tasks

_FRESH_SECONDS = 1.0
"""So long after its next attempt a setback counts as present: then another one would be there."""


@dataclass(frozen=True, slots=True)
class Setback:
    """An attempt that failed and will be repeated."""

    key: str
    error: str
    """What the store, or the lack of an answer, said; without the key."""
    throttled: bool
    attempt: int
    """1 is the first."""
    attempts_max: int
    """After which it is given up, however little time they took."""
    wait_seconds: float
    """Until the next attempt."""
    elapsed_seconds: float
    """Since the request was first made."""
    left_seconds: float
    """Of the time in which the request is repeated."""


@dataclass(frozen=True, slots=True)
class TroubleSight:
    """All trouble of one store up to a moment."""

    throttled: int
    """Requests that the store put off: each answer of that kind counts."""
    failed: int
    """Other attempts that were repeated: no connection, no answer, an error of the server."""
    lost_seconds: float
    """In which at least one request was held up; requests side by side count once."""
    present: Setback | None
    """The last setback, if it may still hold a request up."""
    next_seconds: float
    """Until the attempt after `present`."""
    silent_seconds: float
    """How long the oldest of the present attempts has had no answer. Transfers are left out,
    for they may take long."""


class RequestInHand:
    """A request from its first attempt to its last. Made by `StoreTrouble.begin`."""

    __slots__ = ("attempt_at", "begun_at", "transfer")

    def __init__(self, begun_at: float, *, transfer: bool) -> None:
        self.begun_at = begun_at
        self.attempt_at = begun_at
        """When the present attempt began, or will."""
        self.transfer = transfer


class StoreTrouble:
    """Counts setbacks. Safe between threads. `told` gets the sight after each setback, under our
    lock, and must not ask anything of the store."""

    def __init__(
        self, clock: Clock, tasks: Tasks, told: Callable[[TroubleSight], None] | None = None
    ) -> None:
        self._clock = clock
        self._lock = tasks.lock()
        self._told = told
        self._in_hand: set[RequestInHand] = set()
        self._throttled = 0
        self._throttled_taken = 0
        self._failed = 0
        self._lost_seconds = 0.0
        self._lost_until = 0.0
        self._last: Setback | None = None
        self._next_at = 0.0

    def begin(self, *, transfer: bool) -> RequestInHand:
        """`transfer`: it may take long without being in trouble."""
        request = RequestInHand(self._clock.monotonic(), transfer=transfer)
        with self._lock:
            self._in_hand.add(request)
        return request

    def end(self, request: RequestInHand) -> None:
        """However the request ended."""
        with self._lock:
            self._in_hand.discard(request)

    def put_off(self, request: RequestInHand, setback: Setback) -> None:
        now = self._clock.monotonic()
        with self._lock:
            request.attempt_at = now + setback.wait_seconds
            if setback.throttled:
                self._throttled += 1
            else:
                self._failed += 1
            begin = max(request.begun_at, self._lost_until)
            self._lost_seconds += max(0.0, request.attempt_at - begin)
            self._lost_until = max(self._lost_until, request.attempt_at)
            self._last, self._next_at = setback, request.attempt_at
            if self._told is not None:
                self._told(self._sight(now))

    def take_throttled(self) -> int:
        """Requests that the store put off since the last call."""
        with self._lock:
            taken = self._throttled - self._throttled_taken
            self._throttled_taken = self._throttled
            return taken

    def sight(self) -> TroubleSight:
        now = self._clock.monotonic()
        with self._lock:
            return self._sight(now)

    def _sight(self, now: float) -> TroubleSight:
        attempts = [one.attempt_at for one in self._in_hand if not one.transfer]
        is_present = self._last is not None and now <= self._next_at + _FRESH_SECONDS
        return TroubleSight(
            throttled=self._throttled,
            failed=self._failed,
            lost_seconds=self._lost_seconds,
            present=self._last if is_present else None,
            next_seconds=max(0.0, self._next_at - now),
            silent_seconds=max(0.0, now - min(attempts, default=now)),
        )
