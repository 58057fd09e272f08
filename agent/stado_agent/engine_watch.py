"""Whether this host can run jobs in images: its container engine, asked now and then."""

from __future__ import annotations

import logging

from stado.errors import EngineFailed
from stado.ports import Clock, Engine

log = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0


class EngineWatch:
    """`engine` None: there is nothing to ask."""

    def __init__(self, clock: Clock, engine: Engine | None) -> None:
        self._clock = clock
        self._engine = engine
        self._name: str | None = None
        self._look_at = float("-inf")
        self._told: str | None = None
        self._has_answered = False

    def name(self) -> str | None:
        """Of the engine that answered last, with its version; None when none did. It is asked at
        most once a minute, and waited for some seconds then."""
        if self._engine is not None and self._clock.monotonic() >= self._look_at:
            self._look(self._engine)
            self._look_at = self._clock.monotonic() + _LOOK_SECONDS
        return self._name

    def look_again(self) -> str | None:
        """Something has just failed there."""
        self._look_at = float("-inf")
        return self.name()

    def _look(self, engine: Engine) -> None:
        """A line when it begins, and when it is over: a warning only of one that has answered."""
        why = None
        try:
            self._name = engine.facts().name
            self._has_answered = True
        except EngineFailed as error:
            self._name, why = None, error.strerror
        if why != self._told:
            self._told = why
            if why is None:
                log.info("event=engine_answers engine=%r", self._name)
            elif self._has_answered:
                log.warning("event=engine_silent error=%r", why)
            else:  # most hosts have none that runs, and are to run no images
                log.info("event=no_engine detail='jobs with an image are not taken' error=%r", why)
