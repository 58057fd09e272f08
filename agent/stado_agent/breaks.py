"""What keeps a job's run from going straight on from its claim to its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stado_agent.job_clocks import TimeUp


class Fenced(Exception):
    """The epoch was ended without us: nothing more may be written for it."""


class Carried(Exception):
    """The outcome belongs to the next epoch now: it is delivered anew, under that."""


class Cancelled(Exception):
    """A cancel was asked for, and everything that the command started has been stopped."""


class OutOfTime(Exception):
    """A limit of time was reached, and everything that the command started has been stopped."""

    def __init__(self, time_up: TimeUp) -> None:
        super().__init__(time_up.detail)
        self.time_up = time_up


class Paused(Exception):
    """A pause was asked for, and everything that the command started has been stopped."""


class GivesWay(Exception):
    """The job was asked to make room, and everything that the command started has been stopped."""


class GivenUp(Exception):
    """A cancel came while the store did not take what the job left."""


class NotStarted(Exception):
    """What was asked for cannot be started: nothing of it has run."""


class HostUnable(Exception):
    """This host has no room to start anything: nothing of the job has run."""


class TooMuchMemory(Exception):
    """The command was ended because of its memory."""


class PulseFailed(Exception):
    """The pulse has ended by an error that nobody foresaw: the supervisor ends, too."""


class InputUnavailable(Exception):
    """Something that the job starts from cannot be had, however often one tries: names it, and says
    what is wrong."""
