"""Every error that stado raises on purpose, named by what the caller should do about it.

A store answers *present*, *absent* or *unreachable*; the three never stand in for each other.
"""

from __future__ import annotations

import errno


class StadoError(Exception):
    """Base of all errors below. Its text is a sentence for the user, with the remedy."""


class StoreError(StadoError):
    """A store did not do what was asked. `key` is the object concerned ("" for the store)."""

    def __init__(self, key: str, text: str = "") -> None:
        super().__init__(f"{key}: {text}" if key and text else key or text)
        self.key = key


class NotFound(StoreError):
    """The store was asked and holds no such object."""


class NotModified(StoreError):
    """The object still has the version that the caller knows."""


class Exists(StoreError):
    """A create found the key taken. Certainly not applied."""


class Conflict(StoreError):
    """A replace or delete found another version, or none. Certainly not applied."""


class Unavailable(StoreError):
    """The store did not take the request. Certainly not applied; it may be tried again."""


class Throttled(Unavailable):
    """The store asks for fewer requests (429, 503). Certainly not applied."""


class Ambiguous(StoreError):
    """A write may have been applied, may still be, or may never be. Read, then compare tokens."""


class Denied(StoreError):
    """The credentials do not allow it, or there are none. Trying again does not help."""


class Misconfigured(StoreError):
    """The address, the options or the server cannot work as they are. Never tried again."""


class Unreadable(StadoError):
    """An object exists but is not what its key promises. It costs one job, never a listing."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key} is unreadable: {why}")
        self.key = key
        self.why = why


class Refused(StadoError):
    """A request is wrong as it stands. `code` is stable and machine-readable, the text is for
    people and names the offending value and the remedy."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class JobError(StadoError):
    """A job has no result to give. `reason` (a word) and `detail` (a sentence) say why, as far as
    anybody does."""

    def __init__(
        self,
        job_id: str,
        text: str,
        *,
        reason: str | None = None,
        detail: str | None = None,
        exit_code: int | None = None,
    ) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.reason = reason
        self.detail = detail
        self.exit_code = exit_code


class JobFailed(JobError):
    """It ended, and not well."""


class JobCancelled(JobError):
    """Somebody cancelled it."""


class JobTimedOut(JobError):
    """It took longer than it was allowed to."""


class ResultLost(JobError):
    """It completed, and its result did not come to the store, or is not there any more as it
    was."""


class NotFinished(JobError, TimeoutError):
    """It has not ended yet, and was waited for as long as was asked."""


class EngineFailed(OSError):
    """The container engine of this host did not answer, or did not do what was asked: nothing is
    known of what was asked about. `strerror` says why."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EIO, why)


class AcceleratorsUnknown(OSError):
    """This host has a driver for accelerators, and what it drives cannot be found out. `strerror`
    says why."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EIO, why)


class ChannelClosed(StadoError):
    """The other end of a channel between two of our processes is gone."""


class SendFailed(StadoError):
    """A channel did not take a message, or nothing is known of it. The text says why, and nothing
    of where the channel leads, which may be a secret."""
