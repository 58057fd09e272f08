"""What every store must do, as checks that run against a real one.

`checks` is the whole contract, for the tests of adapters. `prove` is the part that a user's own
bucket has to pass before a deployment trusts it: several servers accept conditions and then
ignore them, and two workers would take the same job.

Everything is written under a scratch folder that the caller names, and removed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path

from stado.errors import (
    Ambiguous,
    Conflict,
    Exists,
    Misconfigured,
    NotFound,
    NotModified,
    StoreError,
)
from stado.ports import Entropy, Tasks
from stado.storage.port import Store, Version, walk

RACERS = 8
RACE_ROUNDS = 3
SWAP_RACERS = 4
SWAPS_EACH = 5
PROOF_SWAPS_EACH = 2
"""Some services take one write a second of an object, and a proof shall take seconds."""

SWAP_ATTEMPTS_MAX = 400
_PAGE = 5
_CLOCK_TOLERANCE = timedelta(seconds=5)


class ContractBroken(Exception):
    """A store does not do what the port promises; the text says what it did instead."""


class Condition(StrEnum):
    """What a store can be found to ignore, in words that its documentation uses."""

    CREATE = "create-if-absent (If-None-Match, ifGenerationMatch=0)"
    REPLACE = "compare-and-swap (If-Match, ifGenerationMatch)"
    DELETE = "delete by version (If-Match, ifGenerationMatch)"
    LISTING = "consistent listing in byte order"


@dataclass(frozen=True, slots=True)
class Bench:
    """What a check works with."""

    store: Store
    tasks: Tasks
    entropy: Entropy
    prefix: str
    """A scratch folder of its own, without the closing `/`."""

    files: Path
    """A local folder for what is uploaded and downloaded."""

    def key(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    @property
    def folder(self) -> str:
        return f"{self.prefix}/"


@dataclass(frozen=True, slots=True)
class Check:
    """One promise. `run` raises `ContractBroken`, or the store's own error."""

    name: str
    run: Callable[[Bench], None]
    needs_conditional_delete: bool = False


@dataclass(frozen=True, slots=True)
class Proof:
    """What a store was found to honour."""

    ignored: tuple[Condition, ...] = field(default=())
    """Conditions without which no job is safe. Empty: the store can be used."""

    conditional_delete: bool = True
    """False: the store ignores the condition of a delete, which is tolerated with a warning."""

    @property
    def accepted(self) -> bool:
        return not self.ignored

    @property
    def text(self) -> str:
        """A sentence for the user."""
        if self.ignored:
            return f"the store does not honour {'; '.join(self.ignored)}: stado cannot use it"
        if not self.conditional_delete:
            return f"the store can be used, but does not honour {Condition.DELETE}"
        return "the store honours every condition"


# The proof


def prove(store: Store, tasks: Tasks, entropy: Entropy, prefix: str) -> Proof:
    """Tries the store's conditions, one after another and by races; takes some seconds.

    `prefix` is a folder (without the closing `/`) below which a new one is made and emptied.
    `store` is one that retries, for a race makes services answer that they want it slower, or
    that another write was under way; its retries do not make up for an ignored condition.
    Raises what keeps the store from answering at all: `Denied`, `Misconfigured`, `Unavailable`."""
    bench = Bench(store, tasks, entropy, f"{prefix}/{entropy.token()}", Path())
    store.put(bench.key("reachable"), b"")
    try:
        ignored = tuple(
            condition
            for condition, parts in _PROOF.items()
            if not all(_holds(part, bench) for part in parts)
        )
        return Proof(ignored, conditional_delete=_holds(check_delete_needs_the_version, bench))
    finally:
        empty(store, bench.folder)


def empty(store: Store, folder: str) -> None:
    """Deletes every object of a folder (with its closing `/`)."""
    for entry in list(walk(store, folder)):
        store.delete(entry.key, None)


def _holds(check: Callable[[Bench], None], bench: Bench) -> bool:
    """A server that answers a condition with an error of its own does not honour it either."""
    try:
        check(bench)
    except (ContractBroken, Misconfigured, Exists, Conflict, NotFound):
        return False
    return True


# One object


def check_object_reads_back(bench: Bench) -> None:
    key = bench.key("read-back")
    version = bench.store.create(key, b"one")
    blob = bench.store.get(key)
    _require((blob.data, blob.version) == (b"one", version), f"create gave {version}, get {blob}")
    entry = bench.store.head(key)
    _require((entry.key, entry.version, entry.size) == (key, version, 3), f"head gave {entry}")


def check_contents_of_any_size_and_kind(bench: Bench) -> None:
    contents = [b"", b"\0", bytes(range(256)) * 4096, "žluťoučký\r\n".encode()]
    for number, data in enumerate(contents):
        key = bench.key(f"content-{number}")
        version = bench.store.create(key, data)
        blob = bench.store.get(key)
        _require(blob.data == data, f"{len(data)} bytes came back as {len(blob.data)} others")
        _require(blob.version == version, f"version {version} became {blob.version}")
        replaced = bench.store.replace(key, data + b"+", version)
        _require(replaced != version, "other bytes have the same version")
        _require(bench.store.get(key).data == data + b"+", "a replace did not take")


def check_absence_is_said(bench: Bench) -> None:
    key = bench.key("absent")
    _expect(NotFound, lambda: bench.store.get(key), "get of an absent object")
    _expect(NotFound, lambda: bench.store.get(key, unless="1"), "get of an absent object")
    _expect(NotFound, lambda: bench.store.get_range(key, 0, 1), "a part of an absent object")
    _expect(NotFound, lambda: bench.store.head(key), "head of an absent object")
    target = bench.files / "absent"
    _expect(NotFound, lambda: bench.store.download(key, target), "download of an absent object")
    _require(not target.exists(), "a failed download left a file")


def check_a_part_is_read_alone(bench: Bench) -> None:
    key, data = bench.key("part"), _pattern(100_000)
    bench.store.create(key, data)
    for start, length in ((0, 1), (0, 100_000), (7, 300), (99_990, 10), (99_990, 11), (5, 200_000)):
        found = bench.store.get_range(key, start, length)
        expected = data[start : start + length]
        _require(found == expected, f"{length} bytes from {start} on came back as {len(found)}")
    for start in (100_000, 100_001, 10**9):
        found = bench.store.get_range(key, start, 1)
        _require(found == b"", f"behind the end, at {start}, there are {len(found)} bytes")
    bench.store.create(bench.key("part-of-nothing"), b"")
    _require(bench.store.get_range(bench.key("part-of-nothing"), 0, 5) == b"", "nothing has a part")


def check_unchanged_object_is_not_sent(bench: Bench) -> None:
    key = bench.key("unless")
    first = bench.store.create(key, b"one")
    _expect(NotModified, lambda: bench.store.get(key, unless=first), "get unless its version")
    second = bench.store.replace(key, b"two", first)
    blob = bench.store.get(key, unless=first)
    _require((blob.data, blob.version) == (b"two", second), f"get unless an old version: {blob}")


def check_put_makes_and_overwrites(bench: Bench) -> None:
    key = bench.key("put")
    first = bench.store.put(key, b"one")
    second = bench.store.put(key, b"two")
    blob = bench.store.get(key)
    _require(first != second, "two puts have one version")
    _require((blob.data, blob.version) == (b"two", second), f"get after put gave {blob}")


def check_bad_keys_are_refused(bench: Bench) -> None:
    names = ["", "a//b", "../a", "a/./b", ".a", "é", "a b", "back\\slash", "new\nline", "x" * 201]
    for name in names:
        _expect(Misconfigured, partial(bench.store.put, bench.key(name), b""), repr(name))
    bench.store.put(bench.key("A-Za-z0-9!$&'()+,;=@_~.-" + "x" * 170), b"")


# Conditions


def check_second_create_fails(bench: Bench) -> None:
    key = bench.key(f"create-{bench.entropy.letters(4)}")
    bench.store.create(key, b"first")
    _expect(Exists, lambda: bench.store.create(key, b"second"), "a second create")
    _require(bench.store.get(key).data == b"first", "a second create overwrote the first")


def check_replace_needs_the_version(bench: Bench) -> None:
    key = bench.key(f"replace-{bench.entropy.letters(4)}")
    first = bench.store.create(key, b"first")
    second = bench.store.replace(key, b"second", first)
    _expect(Conflict, lambda: bench.store.replace(key, b"third", first), "a replace of the past")
    _require(bench.store.get(key).data == b"second", "a refused replace was applied")
    bench.store.replace(key, b"fourth", second)
    _require(bench.store.get(key).data == b"fourth", "a right replace was not applied")


def check_replace_of_an_absent_object_fails(bench: Bench) -> None:
    key = bench.key(f"gone-{bench.entropy.letters(4)}")
    version = bench.store.create(key, b"first")
    bench.store.delete(key, None)
    _expect(Conflict, lambda: bench.store.replace(key, b"second", version), "replace of nothing")
    _expect(NotFound, lambda: bench.store.get(key), "get after a refused replace")


def check_delete_removes(bench: Bench) -> None:
    key = bench.key("delete")
    version = bench.store.create(key, b"one")
    bench.store.delete(key, version)
    _expect(NotFound, lambda: bench.store.get(key), "get after a delete")
    bench.store.delete(key, version)
    bench.store.delete(key, None)
    bench.store.create(key, b"two")
    bench.store.delete(key, None)
    _require(not bench.store.list(bench.key("delete")), "a deleted object is listed")


def check_delete_needs_the_version(bench: Bench) -> None:
    key = bench.key(f"delete-{bench.entropy.letters(4)}")
    first = bench.store.create(key, b"first")
    second = bench.store.replace(key, b"second", first)
    _expect(Conflict, lambda: bench.store.delete(key, first), "a delete of the past")
    _require(bench.store.get(key).version == second, "a refused delete changed the object")


def check_many_creates_spare_what_is_there(bench: Bench) -> None:
    taken = bench.key("many-07")
    bench.store.create(taken, b"mine")
    items = [(bench.key(f"many-{number:02}"), f"{number}".encode()) for number in range(40)]
    versions = bench.store.create_many(items)
    _require([v is None for v in versions] == [k == taken for k, _ in items], f"{versions}")
    _require(bench.store.get(taken).data == b"mine", "create_many overwrote an object")
    for (key, data), version in zip(items, versions, strict=True):
        blob = bench.store.get(key)
        _require(key == taken or (blob.data, blob.version) == (data, version), f"{key}: {blob}")
    _require(bench.store.create_many([]) == [], "create_many of nothing is not nothing")


# Listings


def check_listing_is_ordered_and_paged(bench: Bench) -> None:
    names = sorted(["!first", "-", "0", "9", "A", "Z", "_", "a", "aa", "a-b", "a.b", "b", "~"])
    keys = [bench.key(name) for name in names]
    for key in reversed(keys):
        bench.store.create(key, b"" if key.endswith("a") else b"x")
    _require(_listed(bench, keys) == keys, f"order: {_listed(bench, keys)}")
    for after in [*keys, bench.key("B"), bench.key("a,"), bench.folder]:
        expected = [key for key in keys if key > after]
        found = [e.key for e in bench.store.list(bench.folder, start_after=after)]
        _require([k for k in found if k in keys] == expected, f"after {after}: {found}")


def check_pages_end_exactly(bench: Bench) -> None:
    keys = [bench.key(f"page-{number:03}") for number in range(2 * _PAGE)]
    bench.store.create_many([(key, b"") for key in keys])
    prefix = bench.key("page-")
    for size in (1, _PAGE - 1, _PAGE, 2 * _PAGE, 2 * _PAGE + 1):
        found = [entry.key for entry in walk(bench.store, prefix, page_size=size)]
        _require(found == keys, f"pages of {size}: {found}")
    page = bench.store.list(prefix, start_after=keys[2], limit=_PAGE)
    _require([e.key for e in page] == keys[3 : 3 + _PAGE], f"one page: {page}")
    _require(bench.store.list(prefix, start_after=keys[-1]) == [], "something after the last key")


def check_listing_follows_writes(bench: Bench) -> None:
    folder = bench.key("fresh-")
    for number in range(5):
        key = f"{folder}{number}"
        first = bench.store.create(key, b"one")
        _require(_sole(bench, key) == (key, first, 3), "a created object is not listed")
        second = bench.store.replace(key, b"four", first)
        _require(_sole(bench, key) == (key, second, 4), "a listing shows the object before")
        bench.store.delete(key, None)
        _require(bench.store.list(key) == [], "a deleted object is listed")


def check_prefixes_select(bench: Bench) -> None:
    inside = [bench.key(name) for name in ("job-1", "job-10", "job-2")]
    for key in [*inside, bench.key("jab"), bench.key("k")]:
        bench.store.create(key, b"")
    _require([e.key for e in bench.store.list(bench.key("job-"))] == inside, "by beginning")
    _require([e.key for e in bench.store.list(bench.key("job-1"))] == inside[:2], "by a key")
    _require(bench.store.list(bench.key("nothing")) == [], "a beginning that nobody has")
    _require(bench.store.list(f"{bench.prefix}-other/") == [], "a folder that is not there")


def check_listing_and_head_agree(bench: Bench) -> None:
    key = bench.key("agree")
    bench.store.create(key, b"data")
    (listed,) = bench.store.list(key)
    headed = bench.store.head(key)
    _require(listed.version == headed.version and listed.size == headed.size, f"{listed} {headed}")
    apart = abs(listed.modified_at - headed.modified_at)
    _require(apart < timedelta(seconds=1), f"modified {listed.modified_at}, {headed.modified_at}")


# Time and transfers


def check_clock_is_the_stores(bench: Bench) -> None:
    key = bench.key("clock")
    bench.store.create(key, b"")
    modified_at = bench.store.head(key).modified_at
    now = bench.store.now()
    _require(modified_at.tzinfo is not None and now.tzinfo is not None, "times without a zone")
    _require(abs(now - modified_at) < _CLOCK_TOLERANCE, f"now {now}, modified {modified_at}")
    _require(bench.store.now() >= now, "the clock went back")


def check_files_go_and_come(bench: Bench) -> None:
    for size in (0, 1, 3_000_001):
        source, target = bench.files / "source", bench.files / "target"
        source.write_bytes(_pattern(size))
        key = bench.key(f"file-{size}")
        sent = bench.store.upload(key, source)
        received = bench.store.download(key, target)
        _require(sent == received and sent.size == size, f"sent {sent}, received {received}")
        _require(target.read_bytes() == source.read_bytes(), f"{size} bytes came back different")
        _require(bench.store.head(key).size == size, "head gives another size")
        (listed,) = bench.store.list(key)
        _require(listed.version == bench.store.head(key).version, "list and head differ")
    bench.store.download(bench.key("file-1"), bench.files / "target")


# Races


def check_create_race_has_one_winner(bench: Bench) -> None:
    for _ in range(RACE_ROUNDS):
        key = bench.key(f"race-{bench.entropy.letters(6)}")
        contestants = [(key, f"racer {racer}".encode()) for racer in range(RACERS)]
        results = bench.tasks.map(partial(_created, bench.store), contestants, limit=RACERS)
        winners = [data for data in results if data is not None]
        _require(len(winners) == 1, f"{len(winners)} of {RACERS} racing creates succeeded")
        _require(bench.store.get(key).data == winners[0], "the object is not the winner's")


def check_no_swap_is_lost(bench: Bench, swaps_each: int = SWAPS_EACH) -> None:
    key = bench.key(f"counter-{bench.entropy.letters(6)}")
    bench.store.create(key, b"0 start")

    def count(racer: int) -> int:
        return sum(_increment(bench, key, f"{racer}-{n}") for n in range(swaps_each))

    certain = sum(bench.tasks.map(count, range(SWAP_RACERS), limit=SWAP_RACERS))
    total = int(bench.store.get(key).data.split()[0])
    possible = SWAP_RACERS * swaps_each
    _require(certain <= total <= possible, f"{certain} swaps succeeded, {total} are there")


def check_delete_and_replace_exclude_each_other(bench: Bench) -> None:
    for number in range(2 * RACE_ROUNDS):
        key = bench.key(f"either-{number}")
        version = bench.store.create(key, b"old")
        actions: list[Callable[[], object]] = [
            partial(bench.store.delete, key, version),
            partial(bench.store.replace, key, b"new", version),
        ]
        outcomes = bench.tasks.map(_succeeds, actions, limit=len(actions))
        _require(sum(outcomes) == 1, f"delete and replace of one version: {outcomes}")


_CHECKS: Sequence[Check] = (
    *(
        Check(check.__name__.removeprefix("check_"), check)
        for check in (
            check_object_reads_back,
            check_contents_of_any_size_and_kind,
            check_absence_is_said,
            check_unchanged_object_is_not_sent,
            check_a_part_is_read_alone,
            check_put_makes_and_overwrites,
            check_bad_keys_are_refused,
            check_second_create_fails,
            check_replace_needs_the_version,
            check_replace_of_an_absent_object_fails,
            check_delete_removes,
            check_many_creates_spare_what_is_there,
            check_listing_is_ordered_and_paged,
            check_pages_end_exactly,
            check_listing_follows_writes,
            check_prefixes_select,
            check_listing_and_head_agree,
            check_clock_is_the_stores,
            check_files_go_and_come,
            check_create_race_has_one_winner,
            check_no_swap_is_lost,
        )
    ),
    *(
        Check(check.__name__.removeprefix("check_"), check, needs_conditional_delete=True)
        for check in (
            check_delete_needs_the_version,
            check_delete_and_replace_exclude_each_other,
        )
    ),
)

_PROOF: dict[Condition, Sequence[Callable[[Bench], None]]] = {
    Condition.CREATE: (check_second_create_fails, check_create_race_has_one_winner),
    Condition.REPLACE: (
        check_replace_needs_the_version,
        check_replace_of_an_absent_object_fails,
        partial(check_no_swap_is_lost, swaps_each=PROOF_SWAPS_EACH),
    ),
    Condition.LISTING: (check_listing_is_ordered_and_paged, check_listing_follows_writes),
}


def checks() -> Sequence[Check]:
    """The whole contract. Each check wants an empty scratch folder."""
    return _CHECKS


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ContractBroken(text)


def _expect(error: type[StoreError], call: Callable[[], object], what: str) -> None:
    try:
        call()
    except error:
        return
    raise ContractBroken(f"{what} succeeded, where {error.__name__} was due")


def _created(store: Store, item: tuple[str, bytes]) -> bytes | None:
    """The data, if this create was the winner."""
    key, data = item
    try:
        store.create(key, data)
    except Exists:
        return None
    return data


def _succeeds(action: Callable[[], object]) -> bool:
    try:
        action()
    except Conflict:
        return False
    return True


def _increment(bench: Bench, key: str, nonce: str) -> bool:
    """Adds one by compare-and-swap. False when the store left it open whether it did."""
    for _ in range(SWAP_ATTEMPTS_MAX):
        blob = bench.store.get(key)
        count = int(blob.data.split()[0])
        try:
            bench.store.replace(key, f"{count + 1} {nonce}".encode(), blob.version)
        except Conflict:
            continue
        except Ambiguous:
            return False
        return True
    raise ContractBroken(f"no swap in {SWAP_ATTEMPTS_MAX} attempts succeeded")


def _listed(bench: Bench, keys: Sequence[str]) -> list[str]:
    return [entry.key for entry in bench.store.list(bench.folder) if entry.key in keys]


def _sole(bench: Bench, key: str) -> tuple[str, Version, int] | None:
    entries = bench.store.list(key)
    return (entries[0].key, entries[0].version, entries[0].size) if len(entries) == 1 else None


def _pattern(size: int) -> bytes:
    block = bytes(range(251))
    return (block * (size // len(block) + 1))[:size]
