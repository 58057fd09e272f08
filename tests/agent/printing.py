"""A job that prints into a spool, and what of it is in the store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stado.core import keys
from stado.jobs.log_segments import SEGMENT_BYTES_MAX, SegmentPlace, list_log
from stado_agent.log_shipping import LogEpoch, LogShipper
from stado_agent.log_spool import LogLimit, LogSpool
from tests.jobs.world import World

JOB = "a" * 16
LARGE = LogLimit(64 * SEGMENT_BYTES_MAX)
SMALL = LogLimit(16_000)


class Printing:
    """A job that prints, and the shipper of its log."""

    def __init__(self, world: World, folder: Path, limit: LogLimit = LARGE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.world = world
        self.folder = folder
        self.limit = limit
        self.spool = LogSpool(folder, limit, world.tasks.lock())
        self.shipper = LogShipper(world.repo, self.spool, limit, LogEpoch(JOB, 1))

    def print(self, data: bytes) -> None:
        if data:
            self.spool.append(memoryview(data))

    def lose(self, data: bytes) -> None:
        """Prints what the disk takes none of."""
        self.spool.close()
        away = self.folder.rename(self.folder.with_name("away"))
        self.print(data)
        away.rename(self.folder)

    def pass_time(self, seconds: float) -> None:
        self.world.clock.sleep(seconds)
        self.shipper.ship_when_due()

    def take_over(self) -> None:
        """What another one left in the folder."""
        self.spool = LogSpool.left_in(self.folder, self.limit, self.world.tasks.lock())
        self.shipper = LogShipper(self.world.repo, self.spool, self.limit, LogEpoch(JOB, 1))
        self.shipper.go_on()

    def places(self, epoch: int = 1) -> list[SegmentPlace]:
        return list_log(self.world.repo, JOB, epoch).segments

    def segments(self, epoch: int = 1) -> list[bytes]:
        return [
            self.world.store.get(keys.log_segment(JOB, epoch, place.offset)).data
            for place in self.places(epoch)
        ]


def assert_lines_are_whole(
    printed: bytes, places: Iterable[SegmentPlace], *, piece_bytes: int
) -> None:
    """As PROTOCOL.md has it: each segment ends with a line, and one behind a gap begins with a
    line. Excepted are lines that no segment holds, and the end of all."""
    previous_end = 0
    for place in places:
        cuts = {place.end} if place.offset == previous_end else {place.offset, place.end}
        for cut in cuts - {len(printed)}:
            assert _line_around(printed, cut) > piece_bytes or printed[cut - 1] in _LINE_ENDS
        previous_end = place.end


_LINE_ENDS = b"\r\n"


def _line_around(printed: bytes, cut: int) -> int:
    """Bytes of the line that a cut goes through, its end included."""
    start = max(printed.rfind(bytes([end]), 0, cut) for end in _LINE_ENDS) + 1
    ends = [found for end in _LINE_ENDS if (found := printed.find(bytes([end]), cut)) >= 0]
    return min(ends, default=len(printed) - 1) + 1 - start
