"""What of ended jobs goes by itself: how old it has to be, and what keeps it all the same.

Nothing goes unless somebody has set an age for it, and nothing that is younger than a day.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec

from stado.core.documents import COUNT_MAX, Part
from stado.core.durations import DURATION_SECONDS_MAX, duration_text
from stado.core.size_words import stated_size
from stado.core.states import Leftover

AGE_SECONDS_MIN = 86_400
"""Nobody can set a lower age. So what ended within a day is there, and readers need not ask."""

KEEP_NEWEST_DEFAULT = 100
KEEP_NEWEST_MAX = 100_000

Age = Annotated[int, msgspec.Meta(ge=AGE_SECONDS_MIN, le=DURATION_SECONDS_MAX)]
"""Seconds since a job came to rest."""

Newest = Annotated[int, msgspec.Meta(ge=0, le=KEEP_NEWEST_MAX)]


OutputBytes = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
"""What the outputs of all ended jobs may take together."""

OUTPUT_BYTES = "retention.output_bytes"


class RetentionSettings(Part, frozen=True, kw_only=True):
    """For how long it is kept what ended jobs left, and they themselves. None: for ever."""

    logs: Age | None = None
    outputs: Age | None = None
    checkpoints: Age | None = None
    """Of jobs that have completed: others may be retried, and go on from theirs."""
    jobs: Age | None = None
    """With all that they left."""
    output_bytes: OutputBytes | None = None
    """Beyond it the outputs of those jobs go that ended first."""
    keep_newest: Newest | None = None
    """So many ended jobs, those that were submitted last, are not touched."""


_FIELDS = {
    Leftover.LOG: "logs",
    Leftover.OUTPUTS: "outputs",
    Leftover.CHECKPOINTS: "checkpoints",
    Leftover.JOB: "jobs",
}


def setting_of(kind: Leftover) -> str:
    """The name of the setting that says when."""
    return f"retention.{_FIELDS[kind]}"


PARTS = (Leftover.LOG, Leftover.OUTPUTS, Leftover.CHECKPOINTS)
"""What can go while the job stays."""


class Keeps(StrEnum):
    """What keeps something that a rule would let go."""

    NEWEST = "newest"
    YOUNG = "young"
    GOES_ON = "goes_on"
    MAY_BE_RETRIED = "may_be_retried"
    PUBLISHED = "published"
    TAKEN_ALONG = "taken_along"
    PIPELINE = "pipeline"
    UNREADABLE = "unreadable"

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Keeps.NEWEST: "among the newest ended jobs (retention.keep_newest)",
    Keeps.YOUNG: "ended within a day",
    Keeps.GOES_ON: "the job goes on",
    Keeps.MAY_BE_RETRIED: "the job did not complete: a retry goes on from its checkpoints",
    Keeps.PUBLISHED: "its output is published as an artifact",
    Keeps.TAKEN_ALONG: "a job that has not completed takes its output along",
    Keeps.PIPELINE: "its pipeline is not over",
    Keeps.UNREADABLE: "something of it cannot be read",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What is in force: seconds by kind, where an age is set."""

    ages: Mapping[Leftover, int]
    keep_newest: int
    output_bytes: int | None = None
    """What outputs may take together; None: any amount."""

    @property
    def is_any(self) -> bool:
        return bool(self.ages) or self.output_bytes is not None

    @property
    def size_text(self) -> str:
        """`retention.output_bytes 500GB`; only where it is set."""
        assert self.output_bytes is not None
        return f"{OUTPUT_BYTES} {stated_size(self.output_bytes)}"

    @property
    def youngest_seconds(self) -> int | None:
        """Nothing younger goes by any of them; None: nothing goes at all."""
        return min(self.ages.values(), default=None)

    def text(self, kind: Leftover) -> str:
        """`retention.logs 90d`"""
        return f"{setting_of(kind)} {duration_text(self.ages[kind])}"

    def due(self, *, rested_seconds: float, gone: Collection[Leftover]) -> list[Leftover]:
        """What of a job is old enough that has not gone already; the job itself goes first, and
        takes the rest along."""
        kinds = (Leftover.JOB, *(kind for kind in PARTS if kind not in gone))
        return [kind for kind in kinds if kind in self.ages and rested_seconds >= self.ages[kind]]


def rules_of(settings: RetentionSettings) -> Rules:
    ages = {kind: getattr(settings, field) for kind, field in _FIELDS.items()}
    newest = settings.keep_newest
    return Rules(
        ages={kind: age for kind, age in ages.items() if age is not None},
        keep_newest=KEEP_NEWEST_DEFAULT if newest is None else newest,
        output_bytes=settings.output_bytes,
    )
