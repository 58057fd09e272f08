"""What of ended jobs goes by itself: how old it has to be, and what keeps it all the same.

Nothing goes unless somebody has set an age for it, and nothing that is younger than a day.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec

from stado.core.documents import Part
from stado.core.durations import DURATION_SECONDS_MAX, duration_text
from stado.core.states import Leftover

AGE_SECONDS_MIN = 86_400
"""Nobody can set a lower age. So what ended within a day is there, and readers need not ask."""

KEEP_NEWEST_DEFAULT = 100
KEEP_NEWEST_MAX = 100_000

Age = Annotated[int, msgspec.Meta(ge=AGE_SECONDS_MIN, le=DURATION_SECONDS_MAX)]
"""Seconds since a job came to rest."""

Newest = Annotated[int, msgspec.Meta(ge=0, le=KEEP_NEWEST_MAX)]


class RetentionSettings(Part, frozen=True, kw_only=True):
    """For how long it is kept what ended jobs left, and they themselves. None: for ever."""

    logs: Age | None = None
    outputs: Age | None = None
    checkpoints: Age | None = None
    """Of jobs that have completed: others may be retried, and go on from theirs."""
    jobs: Age | None = None
    """With all that they left."""
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
    """What keeps something that is old enough to go."""

    NEWEST = "newest"
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
    )
