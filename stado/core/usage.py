"""What jobs use of hosts: for how long an epoch ran its command, on how many GPUs. Pure.

Each ended epoch that ran has one name in `usage/`, which says all of it, so that a listing alone
answers who has used what. It is computed from the verdict: whoever writes it writes the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from stado.core import keys
from stado.core.documents import COUNT_MAX, Count, Epoch
from stado.core.ids import milliseconds
from stado.core.pipelines import pipeline_root
from stado.core.records import EndCell, Heartbeat, Milliseconds, Ran, Record, Usage
from stado.core.schedules import schedule_of_run
from stado.core.states import Verdict

DAY_MS = 86_400_000

VERDICTS = (
    Verdict.COMPLETED,
    Verdict.FAILED,
    Verdict.CANCELLED,
    Verdict.TIMED_OUT,
    Verdict.PAUSED,
    Verdict.LOST,
    Verdict.RETRYING,
    Verdict.YIELDED,
)
"""By their numbers in names, which never change."""

_MS_MAX = 10**13 - 1
_FIGURE_MAX = 10**13 - 1
_WORD_MAX = 90
"""Letters of a user's name in a key, or of a model's; the name of a longer one is a digest."""

_NAME_MAX = 200
"""Of bytes in all: what a component of a key can have."""

_NAME = re.compile(
    r"(?P<ended>[0-9]{13})-(?P<job>[a-z]{16}(?:-[0-9]{1,6})?)\.(?P<epoch>[1-9][0-9]{0,5})"
    r"~(?P<figures>[a-z0-9.]+)(?P<words>(?:~[a-z][^~]*)*)"
)
_FIGURE = re.compile(r"0|[1-9][0-9]{0,12}")
_PLAIN = re.compile(r"[A-Za-z0-9_@+.-]")
_DIGEST_DIGITS = 12
_DIGEST = re.compile(r"!(?:[0-9a-f]{12}){1,2}")
"""Some versions wrote twice as many digits."""

_REQUESTS = {"dear": "a", "cheap": "q", "received_bytes": "i", "sent_bytes": "o"}
"""By their figures in names."""

_LEFT_OUT_FIRST = "shkmgu"
"""Words without which a use still counts, where not even their digests have room together."""
_ESCAPED = re.compile(r"(?:=[0-9A-F]{2})+")


class Use(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What one epoch used, up to when it ended or, of one that runs, up to now.

    A segment of the ledger has one as its fields, in this order. New ones come last, with a default
    for what older segments do not say, and under a new schema (`core/ledger.py`): a program that
    does not know them must not write such a segment anew."""

    job_id: str
    epoch: Epoch
    user: str
    root: str | None
    """The job that its pipeline began with; None where it is part of none."""
    ended_ms: Milliseconds
    wall_ms: Milliseconds
    gpus: Count = 0
    share_milli: Count = 0
    """Thousandths of a GPU: of shared ones the part alone, all of them together."""
    estimated: bool = False
    """The end is the last sign of life."""
    whole: bool = False
    """The job completed, and this epoch ran all of it: how long it took is a run time."""
    model: str | None = None
    hardware: str | None = None
    """What it ran on; None where nobody said."""
    verdict: Verdict | None = None
    """How it ended; None of one that runs, and where the name says nothing that we know."""
    consumer: str | None = None
    """Whose agent ran it."""
    schedule: str | None = None
    """Which schedule submitted it."""
    price_micro: Count | None = None
    """Millionths of a dollar that its host cost an hour; None: nobody stated a price."""
    part_micro: Count | None = None
    """Millionths of its host that it had, for its price; None where nobody said."""
    output_bytes: Count | None = None
    """What it left; None where nothing is known of it."""
    dear: Count | None = None
    """Writes and listings that it asked of the store; this and the next three are None where that
    is not known."""
    cheap: Count | None = None
    """Reads."""
    received_bytes: Count | None = None
    sent_bytes: Count | None = None
    group: str | None = None
    """The group that its job named; None where it named none, or an older program wrote it."""

    @property
    def is_metered(self) -> bool:
        """Whether it is known what was asked of the store."""
        return None not in (self.dear, self.cheap, self.received_bytes, self.sent_bytes)

    @property
    def name(self) -> tuple[str, int]:
        """Of the epoch: two uses with the same one are one."""
        return self.job_id, self.epoch

    @property
    def began_ms(self) -> int:
        return self.ended_ms - self.wall_ms

    def since(self, ms: int, *, until_ms: int | None = None) -> Use | None:
        """What of it came after a moment, and before another; None where nothing did."""
        end = self.ended_ms if until_ms is None else min(self.ended_ms, until_ms)
        begin = max(self.began_ms, ms)
        if self.ended_ms <= ms or end < begin or (end == begin and end < self.ended_ms):
            return None
        whole = begin == self.began_ms and end == self.ended_ms
        return self if whole else self._cut(begin, end)

    def by_day(self) -> Iterator[tuple[str, Use]]:
        """What of it fell on each day, in UTC."""
        first = self.began_ms // DAY_MS
        last = max(self.began_ms, self.ended_ms - 1) // DAY_MS
        if first == last:
            yield day_of(first * DAY_MS), self
            return
        for day in range(first, last + 1):
            begin, end = day * DAY_MS, (day + 1) * DAY_MS
            yield day_of(begin), self._cut(max(begin, self.began_ms), min(end, self.ended_ms))

    def _cut(self, begin: int, end: int) -> Use:
        """What it left, and asked of the store, counts where it ended."""
        part = msgspec.structs.replace(self, ended_ms=end, wall_ms=end - begin)
        if end == self.ended_ms:
            return part
        part = msgspec.structs.replace(part, output_bytes=None if self.output_bytes is None else 0)
        if not self.is_metered:
            return part
        return msgspec.structs.replace(part, dear=0, cheap=0, received_bytes=0, sent_bytes=0)


def ran_until(
    record: Record,
    ended_at: datetime | None,
    *,
    started_at: datetime | None,
    estimated: bool = False,
) -> Ran | None:
    """From the start of a running record's command; None where there was none. What was adopted
    counts from where the epoch before ends: nothing of it is counted twice."""
    if started_at is None:
        return None
    before = record.ending.ran if record.ending is not None else None
    adopted = record.holder is not None and record.holder.adopted
    began_at = max(started_at, before.ended_at) if adopted and before else started_at
    return Ran(began_at=began_at, ended_at=max(began_at, ended_at or began_at), estimated=estimated)


def used_with(record: Record, ran: Ran | None) -> Usage:
    """What a job has used by the end of an epoch that ran so, or by the moment so far."""
    used = record.usage
    if ran is None:
        return used
    gpus, share_milli = _given_to(record)
    return Usage(
        wall_ms=min(used.wall_ms + ran.wall_ms, COUNT_MAX),
        gpu_ms=min(used.gpu_ms + ran.wall_ms * gpus, COUNT_MAX),
        gpu_share_ms=min(used.gpu_share_ms + ran.wall_ms * share_milli // 1000, COUNT_MAX),
        estimated=used.estimated or ran.estimated,
        unknown_fields=used.unknown_fields,
    )


def used_so_far(record: Record, heartbeat: Heartbeat | None, now: datetime) -> Usage:
    """What a job that runs has used, its ended epochs counted."""
    return used_with(record, _ran_so_far(record, heartbeat, now))


def used_in(cell: EndCell) -> Usage:
    """In this epoch alone."""
    return used_with(cell.record.evolve(usage=Usage()), cell.ending.ran)


def use_of(cell: EndCell) -> Use | None:
    """What an ended epoch used; None where it ran nothing."""
    ending = cell.ending
    if ending.ran is None:
        return None
    use = _use(cell.record, ending.ran)
    left = None if ending.output_bytes is None else min(ending.output_bytes, _FIGURE_MAX)
    use = msgspec.structs.replace(use, verdict=ending.verdict, output_bytes=left)
    asked = ending.requests
    if asked is None:
        return use
    return msgspec.structs.replace(
        use, **{name: min(getattr(asked, name), _FIGURE_MAX) for name in _REQUESTS}
    )


def use_so_far(record: Record, heartbeat: Heartbeat | None, now: datetime) -> Use | None:
    """What an epoch that runs has used; None before its command was started."""
    ran = _ran_so_far(record, heartbeat, now)
    return _use(record, ran) if ran is not None else None


def _ran_so_far(record: Record, heartbeat: Heartbeat | None, now: datetime) -> Ran | None:
    """By its beats: up to now, or, where its holder is not heard any more, up to the last of them.
    Once its files are uploaded the command has ended."""
    if heartbeat is None or heartbeat.epoch != record.epoch or record.holder is None:
        return None
    until, ended = heartbeat.last_sign_at, heartbeat.command_ended_at is not None
    silence = now - heartbeat.at
    silent = heartbeat.sealed or silence > timedelta(seconds=record.holder.lease_seconds)
    if not silent and not ended:
        until = max(now, heartbeat.at)
    started_at, estimated = heartbeat.started_at, silent and not ended
    return ran_until(record, until, started_at=started_at, estimated=estimated)


def _use(record: Record, ran: Ran) -> Use:
    gpus, share_milli = _given_to(record)
    return Use(
        record.id,
        record.epoch,
        record.submitter,
        pipeline_root(record),
        ended_ms=_clamped(milliseconds(ran.ended_at)),
        wall_ms=_clamped(ran.wall_ms),
        gpus=gpus,
        share_milli=share_milli,
        estimated=ran.estimated,
        whole=_is_whole(record, ran),
        model=record.spec.model,
        hardware=None if record.holder is None else record.holder.hardware,
        consumer=None if record.holder is None else record.holder.consumer,
        price_micro=None if record.holder is None else record.holder.price_micro,
        part_micro=None if record.holder is None else record.holder.part_micro,
        schedule=schedule_of_run(record.run_id),
        group=record.spec.group,
    )


def _is_whole(record: Record, ran: Ran) -> bool:
    """What was lost, paused or adopted before ran in parts."""
    completed = record.ending is not None and record.ending.verdict is Verdict.COMPLETED
    return completed and not ran.estimated and record.usage.wall_ms == ran.wall_ms


def _given_to(record: Record) -> tuple[int, int]:
    """GPUs, and thousandths of one by their memory."""
    holder = record.holder
    if holder is None:
        return 0, 0
    return holder.gpus, round(1000 * holder.gpus * holder.gpu_share)


def _clamped(ms: int) -> int:
    """Into what a name has room for: who writes nonsense into a cell spoils no listing."""
    return min(max(0, ms), _MS_MAX)


# --- names --------------------------------------------------------------------------------


def use_key(use: Use) -> str:
    return keys.usage(use_name(use))


def use_name(use: Use) -> str:
    """The one name of it. Names sort by the end. What it asked of the store is in it where all else
    leaves room: a word is never cut for that."""
    begin, requests, root = _figures_of(use), _requests_of(use), _root_of(use)
    words = {
        "u": use.user,
        "m": use.model,
        "h": use.hardware,
        "k": use.consumer,
        "s": use.schedule,
        "g": use.group,
    }
    stated = {letter: word for letter, word in words.items() if word is not None}
    codes = _fitted(stated, _NAME_MAX - len(begin) - len(root))
    rest = root + "".join(f"~{letter}{code}" for letter, code in codes.items())
    is_full = len(begin) + len(requests) + len(rest) > _NAME_MAX
    return begin + ("" if is_full else requests) + rest


def _figures_of(use: Use) -> str:
    figures = f"w{use.wall_ms}.g{use.gpus}.s{use.share_milli}.e{int(use.estimated)}"
    figures += ".c1" if use.whole else ""
    more = {
        "v": None if use.verdict is None else VERDICTS.index(use.verdict),
        "p": use.price_micro,
        "f": use.part_micro,
        "b": use.output_bytes,
    }
    figures += "".join(
        f".{letter}{number}" for letter, number in more.items() if number is not None
    )
    return f"{use.ended_ms:013d}-{use.job_id}.{use.epoch}~{figures}"


def _requests_of(use: Use) -> str:
    if not use.is_metered:
        return ""
    return "".join(f".{letter}{getattr(use, name)}" for name, letter in _REQUESTS.items())


def _root_of(use: Use) -> str:
    return "" if use.root is None else f"~r{use.root}"


def _fitted(words: Mapping[str, str], room: int) -> dict[str, str]:
    """As a key can hold them: the longest are digests where all of them are too long, and some are
    left out where those are. A name always has room: no job could be settled otherwise."""
    codes = {letter: encoded_word(word) for letter, word in words.items()}
    digests = {letter: digest_word(word) for letter, word in words.items()}
    for letter in sorted(codes, key=lambda one: (-len(codes[one]), one)):
        if not _is_too_long(codes, room):
            break
        codes[letter] = min(codes[letter], digests[letter], key=len)
    for letter in _LEFT_OUT_FIRST:
        if _is_too_long(codes, room):
            codes.pop(letter, None)
    return codes


def _is_too_long(codes: Mapping[str, str], room: int) -> bool:
    return sum(len(code) + 2 for code in codes.values()) > room


def parse_use(name: str) -> Use | None:
    """None for what is no name of a use. Figures and words of other versions are passed over; a
    user or a model whose name is too long is told as in the name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    figures = {text[:1]: text[1:] for text in match["figures"].split(".")}
    words = {text[:1]: text[1:] for text in match["words"].split("~")}
    if not all(_FIGURE.fullmatch(figures.get(letter, "")) for letter in "wgse"):
        return None
    return Use(
        match["job"],
        int(match["epoch"]),
        _decoded(words.get("u", "")),
        words.get("r"),
        ended_ms=int(match["ended"]),
        wall_ms=min(int(figures["w"]), int(match["ended"])),
        gpus=int(figures["g"]),
        share_milli=int(figures["s"]),
        estimated=figures["e"] != "0",
        whole=figures.get("c") == "1",
        model=_decoded(words["m"]) if words.get("m") else None,
        hardware=_decoded(words["h"]) if words.get("h") else None,
        verdict=_verdict(figures.get("v", "")),
        consumer=_decoded(words["k"]) if words.get("k") else None,
        schedule=_decoded(words["s"]) if words.get("s") else None,
        price_micro=_number(figures.get("p", "")),
        part_micro=_number(figures.get("f", "")),
        output_bytes=_number(figures.get("b", "")),
        **{name: _number(figures.get(letter, "")) for name, letter in _REQUESTS.items()},
        group=_decoded(words["g"]) if words.get("g") else None,
    )


def _number(text: str) -> int | None:
    return int(text) if _FIGURE.fullmatch(text) else None


def _verdict(text: str) -> Verdict | None:
    number = _number(text)
    return VERDICTS[number] if number is not None and number < len(VERDICTS) else None


def is_understood(name: str, use: Use) -> bool:
    """Whether a name says nothing beside what was read from it: else a newer program wrote it."""
    return use_name(use) == name


def encoded_word(word: str) -> str:
    """What a key can hold: letters as they are, other bytes as `=2F`; a digest where that is too
    long."""
    if _DIGEST.fullmatch(word):  # read from a name
        return word
    data = word.encode("utf-8", "surrogatepass")
    text = "".join(
        chr(byte) if byte < 128 and _PLAIN.match(chr(byte)) else f"={byte:02X}" for byte in data
    )
    return text if 0 < len(text) <= _WORD_MAX else digest_word(word)


def digest_word(word: str) -> str:
    """How a word is told whose name is too long."""
    return f"!{hashlib.sha256(word.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGEST_DIGITS]}"


def _decoded(text: str) -> str:
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[0].replace("=", "")).decode("utf-8", "replace"), text
    )


def day_of(ms: int) -> str:
    """`2026-03-29`, in UTC."""
    return instant(ms).date().isoformat()


def instant(ms: int) -> datetime:
    """Of milliseconds since 1970."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
