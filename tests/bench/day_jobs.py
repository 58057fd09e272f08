"""The jobs of a day at a cluster of 16 hosts with eight cards each, drawn from a seed.

Not a trace: a shape. What is published of clusters on which neural networks are trained
(Microsoft's Philly: Jeon et al., USENIX ATC 2019; Alibaba's PAI: Weng et al., USENIX NSDI 2022)
agrees on it: most jobs want one card and are short, run times go over several orders of magnitude,
and the few large ones have most of the card-hours. The figures below are our own, chosen to look
like that; run times are stretched alike until they fill the cluster as far as is wanted.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

HOSTS = 16
CARDS_PER_HOST = 8
DAY_SECONDS = 86_400.0

_KINDS = (
    # cards, share of the jobs, median minutes, spread of the logarithm
    (1, 0.80, 10.0, 1.3),
    (2, 0.10, 25.0, 1.3),
    (4, 0.06, 45.0, 1.3),
    (8, 0.04, 90.0, 1.2),
)
_SECONDS_MIN = 20.0
_SECONDS_MAX = 12 * 3600.0
_URGENT_SHARE = 0.15
_URGENT_PRIORITY = 5
_YIELDABLE_SHARE = 0.5
"""Of those that are not urgent."""

_YIELDS_MAX = 3
_SAVE_SECONDS = 900.0
_MORE_BY_DAY = 0.6
"""So much more than the mean comes at three in the afternoon, and less at three at night."""


@dataclass(frozen=True, slots=True)
class DayJob:
    """What is known of one job from the beginning; the deciders are not told how long it runs."""

    number: int
    submitted_at: float
    """Seconds since midnight."""
    cards: int
    seconds: float
    """That it runs where nothing stops it."""
    priority: int
    yields: int
    """How often it may make room."""
    save_seconds: float = _SAVE_SECONDS
    """It can go on from where it was at the last multiple of this."""


def draw_day(seed: int, *, jobs: int, load: float, hosts: int = HOSTS) -> list[DayJob]:
    """In the order of their submission. `load`: the card-seconds that they ask for, as a share of
    those that the cluster has in the day."""
    dice = random.Random(seed)
    drawn = sorted(
        (_draw_job(dice, moment) for moment in _moments(dice, jobs)),
        key=lambda job: job.submitted_at,
    )
    asked = sum(job.cards * job.seconds for job in drawn)
    stretch = load * hosts * CARDS_PER_HOST * DAY_SECONDS / asked
    return [
        replace(job, number=number, seconds=max(_SECONDS_MIN, job.seconds * stretch))
        for number, job in enumerate(drawn)
    ]


def _moments(dice: random.Random, count: int) -> list[float]:
    """More by day than at night."""
    found: list[float] = []
    while len(found) < count:
        moment = dice.uniform(0, DAY_SECONDS)
        rate = 1 + _MORE_BY_DAY * math.cos(2 * math.pi * (moment / DAY_SECONDS - 15 / 24))
        if dice.uniform(0, 1 + _MORE_BY_DAY) < rate:
            found.append(moment)
    return found


def _draw_job(dice: random.Random, moment: float) -> DayJob:
    cards, _, minutes, spread = dice.choices(_KINDS, weights=[kind[1] for kind in _KINDS])[0]
    seconds = 60 * minutes * math.exp(dice.gauss(0, spread))
    urgent = dice.random() < _URGENT_SHARE
    yields = 0 if urgent or dice.random() >= _YIELDABLE_SHARE else _YIELDS_MAX
    return DayJob(
        number=0,
        submitted_at=moment,
        cards=cards,
        seconds=min(_SECONDS_MAX, max(_SECONDS_MIN, seconds)),
        priority=_URGENT_PRIORITY if urgent else 0,
        yields=yields,
    )
