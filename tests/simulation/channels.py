"""Channels of a coordinator: slow, and while faults go on not to be relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stado.errors import SendFailed
from tests.simulation.machine import HostClock
from tests.simulation.process import SimHost

if TYPE_CHECKING:
    from tests.simulation.world import World

CHANNELS = frozenset(("team", "pager"))

_SECONDS_MAX = 10.0
_FAILURES = 0.3


class SimMessenger:
    """What it takes, everybody has heard; of half of what it fails to take, too."""

    def __init__(self, world: World, host: SimHost) -> None:
        self._world = world
        self._clock = HostClock(host)
        self._name = host.name

    @property
    def channels(self) -> frozenset[str]:
        return CHANNELS

    def send(self, channel: str, body: bytes) -> None:
        dice, world = self._world.kernel.random, self._world
        fails = world.plan.told < 1 and not world.healing and dice.random() < _FAILURES
        taken = not fails or dice.random() < 0.5
        self._clock.sleep(dice.uniform(0.01, _SECONDS_MAX if fails else 0.5))
        if taken:
            world.trace.note(self._name, f"told {channel}: {body.decode()}")
            world.messages.append((channel, body))
        if fails:
            raise SendFailed("it did not answer")
