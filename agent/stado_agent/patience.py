"""A step that the store does not take is repeated, for hours if need be: what a job has done is
never done again because it could not be told at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from stado.errors import Denied, StoreError
from stado.ports import Clock, Entropy

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_PAUSE_SECONDS = 1.0
_PAUSE_SECONDS_MAX = 30.0
_TRIES_BEFORE_TROUBLE = 3


class Patience:
    """Of one job. `tell` hears what is refused while it goes on, and None once that is over."""

    def __init__(
        self, clock: Clock, entropy: Entropy, *, job_id: str, tell: Callable[[str | None], None]
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._job_id = job_id
        self._tell = tell

    def persist(
        self,
        step: Callable[[], Result],
        *,
        between: Callable[[], None] | None = None,
        answers: tuple[type[StoreError], ...] = (),
        look_seconds: float | None = None,
    ) -> Result:
        """Repeats a step for as long as it takes. Even a refusal can be mended meanwhile: keys
        that were renewed, a bucket that was made again.

        `between` is called between tries, with `look_seconds` also so often while it waits for the
        next one, and ends them by what it raises. `answers` are errors
        that say something about what was asked, and are raised."""
        try:
            return self._repeat(step, between, answers, look_seconds)
        finally:
            self._tell(None)

    def _repeat(
        self,
        step: Callable[[], Result],
        between: Callable[[], None] | None,
        answers: tuple[type[StoreError], ...],
        look_seconds: float | None,
    ) -> Result:
        pause, tries = _PAUSE_SECONDS, 0
        while True:
            try:
                return step()
            except answers:
                raise
            except StoreError as error:
                tries += 1
                self._note_failure(error, tries, pause)
            if between is not None:
                between()
            self._wait(self._entropy.uniform(pause / 2, pause), between, look_seconds)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    def _wait(
        self, seconds: float, between: Callable[[], None] | None, look_seconds: float | None
    ) -> None:
        if between is None or look_seconds is None:
            self._clock.sleep(seconds)
            return
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, look_seconds))
            between()

    def _note_failure(self, error: StoreError, tries: int, pause: float) -> None:
        if tries >= _TRIES_BEFORE_TROUBLE:
            self._tell(f"the store has refused it {tries} times: {error}")
        if tries.bit_count() != 1:  # 1, 2, 4, 8 …: an outage of hours is some lines
            return
        log.warning(
            "event=store_%s job=%s tries=%d retry_seconds=%.0f error=%r",
            "refused" if isinstance(error, Denied) else "unreachable",
            self._job_id,
            tries,
            pause,
            str(error),
        )
