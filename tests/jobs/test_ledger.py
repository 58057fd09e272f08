"""The ledger: each use is counted once, whoever dies at whichever request."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from contextlib import suppress

import msgspec
import pytest
from msgspec.structs import astuple, replace

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.ledger import (
    SEGMENTS_MAX,
    LedgerIndex,
    NewerSegment,
    SegmentRef,
    decode_segment,
    encode_segment,
    segment_of,
)
from stado.core.records import Ending, Ran, StoreRequests
from stado.core.spec import Spec
from stado.core.states import Verdict
from stado.core.usage import Use, use_key, use_name, use_of
from stado.errors import Conflict, Refused, Unavailable, Unreadable
from stado.jobs.endings import give_verdict, settle
from stado.jobs.ledger import Compaction, Ledger, Pace, read_uses
from stado.jobs.ledger_rebuild import Rebuild
from stado.jobs.repository import Repository
from stado.jobs.usage import note_use
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import LEASE, World

PACE = Pace(names_min=1, segment_rows_max=4)
REQUESTS_MAX = 60


def noted(world: World, count: int, *, seconds_ago: int = 0) -> list[Use]:
    """Names of epochs that have just ended, a second apart."""
    first_ms = milliseconds(world.repo.now()) - 1000 * seconds_ago
    uses = [
        Use(
            f"abcdefghijklm{number:03d}".translate(str.maketrans("0123456789", "abcdefghij")),
            1,
            "ada",
            None,
            ended_ms=first_ms + 1000 * number,
            wall_ms=1000,
            verdict=Verdict.COMPLETED,
        )
        for number in range(count)
    ]
    for use in uses:
        with suppress(Exception):
            world.store.create(use_key(use), b"")
    return uses


def compaction(repo: Repository, pace: Pace = PACE) -> Compaction:
    return Compaction(repo, by="coordinator", pace=pace)


def counted(world: World, repo: Repository | None = None, from_ms: int = 0) -> list[Use]:
    repo = repo or world.repo
    found = read_uses(Ledger(repo), repo, from_ms=from_ms)
    return sorted(found.uses(), key=lambda use: use.ended_ms)


def in_segments(world: World) -> list[Use]:
    """Of the segments that the index names."""
    found = world.repo.find(LedgerIndex, keys.LEDGER)
    if found is None:
        return []
    return [
        use
        for ref in found.value.segments
        for use in decode_segment(ref.name, world.store.get(keys.ledger_segment(ref.name)).data)
    ]


def places(world: World) -> Counter[tuple[str, int]]:
    """How many segments have an epoch."""
    return Counter(use.name for use in in_segments(world))


def rest(world: World) -> None:
    """Another coordinator's turns until nothing is left to do."""
    world.clock.sleep(31 * LEASE)
    other = compaction(world.repo)
    for _ in range(10):
        if not other.turns(60).deleted:
            break
    assert world.names(keys.USAGE) == []
    named = [ref.name for ref in world.repo.read(LedgerIndex, keys.LEDGER).value.segments]
    stored = [key.rpartition("/")[2] for key in world.names(keys.LEDGER_SEGMENTS)]
    world.clock.sleep(31 * LEASE)
    compaction(world.repo).sweep()
    stored = [key.rpartition("/")[2] for key in world.names(keys.LEDGER_SEGMENTS)]
    assert sorted(stored) == sorted(named)


def test_names_become_rows_that_say_the_same(world: World) -> None:
    """R223: what was used is counted once, be it a name or a row."""
    uses = noted(world, 11)
    report = compaction(world.repo).turns(60)
    assert (report.taken, report.deleted, report.behind) == (11, 11, False)
    assert world.names(keys.USAGE) == []
    assert counted(world) == uses
    assert in_segments(world) == uses


def test_few_names_wait_until_they_are_old(world: World) -> None:
    noted(world, 3)
    pass_ = compaction(world.repo, Pace())
    counting = CountingStore(world.store, world.tasks)
    compaction(world.repo_over(counting), Pace()).turn()
    assert counting.snapshot().of() == 3, "the sweep's two, and a listing"
    assert pass_.turns(60).deleted == 0
    world.clock.sleep(31 * LEASE)
    assert pass_.turns(60).deleted == 3


def test_small_segments_become_one(world: World) -> None:
    """Segments are as large as they may be, however seldom something ends."""
    pass_ = compaction(world.repo)
    expected: list[Use] = []
    for number in range(9):
        (use,) = noted(world, 1)
        use = replace(use, epoch=number + 1)
        world.store.delete(use_key(replace(use, epoch=1)), None)
        world.store.create(use_key(use), b"")
        expected.append(use)
        pass_.turns(60)
        world.clock.sleep(10)
    sizes = [ref.rows for ref in world.repo.read(LedgerIndex, keys.LEDGER).value.segments]
    assert sizes == [4, 4, 1]
    assert counted(world) == expected
    assert len(world.names(keys.LEDGER_SEGMENTS)) == 3


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("at", range(18))
def test_who_dies_at_any_request_loses_and_doubles_nothing(
    world: World, at: int, applied: bool
) -> None:
    """At each of them: before it, and just after it was applied. The second of two compactions,
    which takes a segment over."""
    first = noted(world, 2)
    compaction(world.repo).turns(60)
    world.clock.sleep(60)
    late = [replace(use, epoch=2, ended_ms=use.ended_ms + 60_000) for use in first]
    for use in late:
        world.store.create(use_key(use), b"")
    with suppress(Crash):
        compaction(world.repo_over(mortal(world.store, at=at, applied=applied))).turns(60)
    assert counted(world) == [*first, *late]
    assert set(places(world).values()) == {1}
    rest(world)
    assert counted(world) == [*first, *late]
    assert set(places(world).values()) == {1}
    assert len(places(world)) == 4


def test_those_are_all_requests_of_a_compaction(world: World) -> None:
    """So that the test above kills at each of them."""
    noted(world, 2)
    compaction(world.repo).turns(60)
    world.clock.sleep(60)
    (use, other) = noted(world, 2)
    for each in (use, other):
        world.store.delete(use_key(each), None)
        world.store.create(use_key(replace(each, epoch=2)), b"")
    counting = CountingStore(world.store, world.tasks)
    compaction(world.repo_over(counting)).turns(60)
    assert 9 <= counting.snapshot().of() <= 18


@pytest.mark.parametrize("steps", range(12))
def test_of_two_compactions_each_use_comes_into_one_segment(world: World, steps: int) -> None:
    """One sleeps after so many requests, while the other does all."""
    uses = noted(world, 6)
    sleeper = Actor(world.store, lambda store: compaction(world.repo_over(store)).turns(60))
    sleeper.step(steps)
    more = [replace(use, epoch=2, ended_ms=use.ended_ms + 60_000) for use in uses[:2]]
    for use in more:
        world.store.create(use_key(use), b"")
    uses += more
    compaction(world.repo).turns(60)
    assert counted(world) == uses
    sleeper.finish()
    assert sleeper.error is None
    assert counted(world) == uses
    assert places(world) == Counter({use.name: 1 for use in uses})
    rest(world)


@pytest.mark.parametrize("steps", range(8))
def test_a_reader_sees_each_use_once_whatever_is_compacted_meanwhile(
    world: World, steps: int
) -> None:
    """Also where the segment that it was about to read is written anew, and gone."""
    uses = noted(world, 3)
    compaction(world.repo).turns(60)
    world.clock.sleep(60)
    late = [replace(use, epoch=2, ended_ms=use.ended_ms + 60_000) for use in uses[:1]]
    for use in late:
        world.store.create(use_key(use), b"")
    reader = Actor(world.store, lambda store: counted(world, world.repo_over(store)))
    reader.step(steps)
    compaction(world.repo).turns(60)
    reader.finish()
    assert reader.result == [*uses, *late]


def test_what_is_noted_again_after_it_was_taken_counts_once(world: World) -> None:
    """As by who settles an epoch again, long after: the segment that has it is looked into."""
    uses = noted(world, 9)
    compaction(world.repo).turns(60)
    world.clock.sleep(3600)
    world.store.create(use_key(uses[1]), b"")
    assert counted(world) == uses
    compaction(world.repo).turns(60)
    assert world.names(keys.USAGE) == []
    assert places(world) == Counter({use.name: 1 for use in uses})


def test_what_comes_late_is_taken_by_a_later_segment(world: World) -> None:
    uses = noted(world, 9)
    compaction(world.repo).turns(60)
    late = replace(uses[2], epoch=7)
    world.store.create(use_key(late), b"")
    compaction(world.repo).turns(60)
    assert world.names(keys.USAGE) == []
    assert Counter(use.name for use in counted(world)) == places(world)
    assert places(world)[late.name] == 1


def test_a_slow_compaction_makes_the_index_name_no_segment_that_was_swept(world: World) -> None:
    """It has created one, and sleeps until the sweep takes that for one of nobody."""
    uses = noted(world, 3)
    sleeper = Actor(world.store, lambda store: compaction(world.repo_over(store)).turns(60))
    while sleeper.pending is not Operation.CREATE or sleeper.pending_key == keys.LEDGER:
        assert sleeper.step()
    sleeper.step()
    assert len(world.names(keys.LEDGER_SEGMENTS)) == 1
    world.clock.sleep(32 * LEASE)
    assert compaction(world.repo, Pace(names_min=100, leases_max=1e6)).sweep() == 1
    sleeper.finish()
    assert counted(world) == uses
    rest(world)
    assert counted(world) == uses


def test_a_name_that_says_more_than_we_know_stays(world: World) -> None:
    """A segment of ours would forget it."""
    (use,) = noted(world, 1)
    world.store.delete(use_key(use), None)
    name = use_name(use).replace(".e0", ".e0.z7")
    world.store.create(keys.usage(name), b"")
    compaction(world.repo).turns(60)
    assert world.names(keys.USAGE) == [keys.usage(name)]
    assert counted(world) == [use]


def test_a_segment_that_cannot_be_read_costs_what_it_has(world: World) -> None:
    """And what it might have stays where it is."""
    uses = noted(world, 8)
    compaction(world.repo).turns(60)
    first = world.repo.read(LedgerIndex, keys.LEDGER).value.segments[0]
    key = keys.ledger_segment(first.name)
    world.store.put(key, b"spoilt")
    world.store.create(use_key(uses[1]), b"")
    compaction(world.repo).turns(60)
    found = read_uses(Ledger(world.repo), world.repo, from_ms=0)
    assert found.unreadable == [key]
    assert sorted(use.ended_ms for use in found.uses()) == sorted(
        use.ended_ms for use in [uses[1], *uses[first.rows :]]
    )
    assert world.names(keys.USAGE) == [use_key(uses[1])]


def test_segments_that_are_gone_are_told(world: World) -> None:
    noted(world, 3)
    compaction(world.repo).turns(60)
    (key,) = world.names(keys.LEDGER_SEGMENTS)
    world.store.delete(key, None)
    with pytest.raises(Unavailable, match="ledger rebuild"):
        counted(world)


def test_an_index_of_others_is_not_guessed_at(world: World) -> None:
    noted(world, 3)
    world.store.put(keys.LEDGER, b"{}")
    with pytest.raises(Unreadable):
        counted(world)
    with pytest.raises(Unreadable):
        compaction(world.repo).turns(60)
    assert len(world.names(keys.USAGE)) == 3


def test_a_question_reads_the_segments_of_its_time_alone(world: World) -> None:
    """R223: whatever was before, and however much."""
    for _ in range(20):
        noted(world, 8)
        compaction(world.repo).turns(60)
        world.clock.sleep(86_400)
    uses = noted(world, 8)
    compaction(world.repo).turns(60)
    counting = CountingStore(world.store, world.tasks)
    found = counted(world, world.repo_over(counting), from_ms=uses[0].ended_ms)
    assert found == uses
    asked = counting.snapshot()
    assert (asked.lists, asked.reads, asked.writes) == (1, 2, 0)


def packed(schema: int, rows: object) -> bytes:
    return zlib.compress(msgspec.json.encode({"schema": schema, "rows": rows}))


def test_a_newer_segment_is_told_as_such_whatever_its_rows_are() -> None:
    for rows in ([["more", "than", 23]], {"by": "column"}, None):
        with pytest.raises(NewerSegment, match="schema 3 and this stado knows up to 2: upgrade"):
            decode_segment("1767225600000-a", packed(3, rows))


def test_what_was_asked_of_the_store_is_carried_on_and_unknown_in_older_rows() -> None:
    """R260: rows of schema 1 end before it."""
    use = Use("abcdefghijklmnop", 1, "ada", None, ended_ms=9, wall_ms=5, output_bytes=4)
    metered = replace(use, dear=12, cheap=7, received_bytes=5, sent_bytes=0)
    assert decode_segment("a", encode_segment([metered, use])) == [metered, use]
    older = msgspec.structs.astuple(metered)[:18]
    assert decode_segment("a", packed(1, [older])) == [use]


def test_a_segment_of_an_older_program_is_read_without_what_it_did_not_know(world: World) -> None:
    """Its rows end earlier: they tell no group."""
    (use,) = noted(world, 1)
    rows = [list(astuple(use))[:18]]
    assert decode_segment("1767225600000-a", packed(1, rows)) == [use]
    with pytest.raises(Unreadable):
        decode_segment("1767225600000-a", packed(2, [[*astuple(use), 7]]))


@pytest.mark.parametrize("nonsense", [{"ended_ms": -5}, {"ended_ms": 2**62}, {"wall_ms": -1}])
def test_a_row_that_no_index_could_name_spoils_its_segment_alone(
    world: World, nonsense: dict[str, int]
) -> None:
    """It is not carried on into the segment that is written anew, and from there into the index."""
    uses = noted(world, 2)
    compaction(world.repo).turns(60)
    (key,) = world.names(keys.LEDGER_SEGMENTS)
    world.store.put(key, encode_segment([replace(uses[0], **nonsense), uses[1]]))  # type: ignore[arg-type]
    world.clock.sleep(60)
    (late,) = noted(world, 1)
    world.store.delete(use_key(late), None)
    late = replace(late, epoch=2)
    world.store.create(use_key(late), b"")
    compaction(world.repo).turns(60)
    assert counted(world) == [late]
    assert len(world.repo.read(LedgerIndex, keys.LEDGER).value.segments) == 2


def test_an_index_that_nobody_could_read_is_not_written(world: World) -> None:
    ref = SegmentRef(name="nonsense", rows=1, first_ms=0, last_ms=0)
    index = LedgerIndex(counter=1, at=world.repo.now(), by="x", segments=[ref])
    with pytest.raises(Unreadable):
        Ledger(world.repo).write_index(index, None)
    assert world.repo.find(LedgerIndex, keys.LEDGER) is None


def test_a_full_ledger_fails_the_pass_once_a_tick(world: World) -> None:
    """And loses nothing: names stay where they are."""
    refs = [
        SegmentRef(name=f"{number:013d}-a", rows=5000, first_ms=number, last_ms=number)
        for number in range(SEGMENTS_MAX)
    ]
    full = LedgerIndex(counter=1, at=world.repo.now(), by="x", segments=refs)
    world.repo.create(keys.LEDGER, full)
    uses = noted(world, 3)
    counting = CountingStore(world.store, world.tasks)
    pass_ = compaction(world.repo_over(counting), Pace(names_min=1))
    with pytest.raises(Unavailable, match="20000 segments, as many as it can"):
        pass_.turns(3600)
    assert counting.snapshot().lists == 2
    assert world.names(keys.USAGE) == [use_key(use) for use in uses]
    assert world.names(keys.LEDGER_SEGMENTS) == []


def test_segments_that_are_gone_fail_the_pass_once_a_tick(world: World) -> None:
    uses = noted(world, 3)
    compaction(world.repo).turns(60)
    (key,) = world.names(keys.LEDGER_SEGMENTS)
    world.store.delete(key, None)
    world.store.create(use_key(uses[1]), b"")
    with pytest.raises(Unavailable, match="ledger rebuild"):
        compaction(world.repo).turns(3600)


def test_names_that_may_not_be_taken_keep_no_others_from_it(world: World) -> None:
    """More of them than a turn looks at, from a newer program: the next turns go on behind them,
    round and round."""
    uses = noted(world, 40)
    for use in uses[:35]:
        world.store.delete(use_key(use), None)
        name = use_name(use).replace(".e0", ".e0.z7")
        world.store.create(keys.usage(name), b"")
    pass_ = compaction(world.repo, Pace(names_min=1, pages_max=1, page_size=10))
    report = pass_.turns(3600)
    assert (report.taken, report.deleted, report.behind) == (5, 5, False)
    assert len(world.names(keys.USAGE)) == 35
    assert counted(world) == uses
    early = replace(uses[0], epoch=2, ended_ms=uses[0].ended_ms - 1)
    world.store.create(use_key(early), b"")
    assert pass_.turns(3600).taken == 1


def test_an_epoch_that_two_segments_have_counts_once(world: World) -> None:
    uses = noted(world, 4)
    compaction(world.repo).turns(60)
    stored = world.repo.read(LedgerIndex, keys.LEDGER)
    twice = segment_of(uses[1:], token="again")
    world.store.create(keys.ledger_segment(twice.name), encode_segment(uses[1:]))
    Ledger(world.repo).write_index(
        stored.value.evolve(segments=[*stored.value.segments, twice]), stored
    )
    assert places(world)[uses[1].name] == 2
    assert counted(world) == uses


# --- made anew ----------------------------------------------------------------------------


def ended_jobs(
    world: World, count: int, spec: Spec | None = None, asked: StoreRequests | None = None
) -> list[Use]:
    uses = []
    for _ in range(count):
        job = world.submit(spec=spec)
        claimed = world.start()
        began_at = world.clock.now()
        world.clock.sleep(30)
        now = world.clock.now()
        span = Ran(began_at=began_at, ended_at=now)
        ending = Ending(
            verdict=Verdict.COMPLETED,
            started_at=began_at,
            ended_at=now,
            ran=span,
            by="alice",
            requests=asked,
        )
        cell, _ = give_verdict(world.repo, claimed.record, ending)
        settle(world.repo, job, 1)
        use = use_of(cell)
        assert use is not None
        uses.append(use)
    return uses


def test_what_no_name_had_room_for_is_found_in_the_verdict(world: World) -> None:
    """R260: of what was asked of the store, where words are very long."""
    most = 10**13 - 1
    asked = StoreRequests(dear=most, cheap=most, received_bytes=most, sent_bytes=most)
    (use,) = ended_jobs(world, 1, Spec(command="", model="m" * 88), asked)
    assert use.dear == most
    compaction(world.repo).turns(60)
    world.clock.sleep(40 * LEASE)
    compaction(world.repo).turns(60)
    (told,) = counted(world)
    assert (told.model, told.is_metered) == (use.model, False)
    Rebuild(world.repo, by="ada").run()
    assert counted(world) == [use]


def test_it_is_made_anew_from_the_verdicts(world: World) -> None:
    """Index and segments are gone; an epoch whose verdict is gone, but not its row, stays."""
    uses = ended_jobs(world, 5)
    gone = noted(world, 1)
    compaction(world.repo).turns(60)
    before = counted(world)
    world.store.put(keys.LEDGER, b"spoilt")
    report = Rebuild(world.repo, by="ada").run()
    assert (report.jobs, report.uses, report.kept, report.found) == (5, 6, 1, 0)
    assert report.unreadable == [keys.LEDGER]
    assert counted(world) == before
    for key in world.names(keys.LEDGER_SEGMENTS):
        world.store.delete(key, None)
    report = Rebuild(world.repo, by="ada").run()
    assert (report.uses, report.kept, report.found) == (5, 0, 5)
    assert counted(world) == uses
    assert gone[0] not in counted(world)
    assert len(world.names(keys.LEDGER_SEGMENTS)) == 1


def test_it_is_not_made_anew_over_what_a_newer_program_wrote(world: World) -> None:
    """Nothing is changed: whoever knows that schema loses nothing."""
    noted(world, 3)
    compaction(world.repo).turns(60)
    (key,) = world.names(keys.LEDGER_SEGMENTS)
    world.store.put(key, packed(3, [["new"]]))
    before = world.store.get(keys.LEDGER).data
    for drops in (False, True):
        with pytest.raises(Refused, match="upgrade stado; nothing was changed"):
            Rebuild(world.repo, by="ada", drop_unreadable=drops).run()
    assert world.store.get(keys.LEDGER).data == before
    assert world.store.get(key).data == packed(3, [["new"]])


@pytest.mark.parametrize("index_too", [False, True])
def test_a_segment_that_cannot_be_read_is_dropped_only_when_asked(
    world: World, index_too: bool
) -> None:
    """Maybe another day, or somebody with a copy of it, makes it readable: it is kept from the
    sweep, too."""
    uses = ended_jobs(world, 3)
    compaction(world.repo).turns(60)
    (key,) = world.names(keys.LEDGER_SEGMENTS)
    whole = world.store.get(key).data
    world.store.put(key, b"spoilt")
    if index_too:
        world.store.put(keys.LEDGER, b"spoilt")
    report = Rebuild(world.repo, by="ada").run()
    assert (report.uses, report.left, report.removed) == (3, [key], [])
    assert counted(world) == uses
    world.clock.sleep(31 * LEASE)
    compaction(world.repo).sweep()
    assert key in world.names(keys.LEDGER_SEGMENTS)
    if not index_too:
        world.store.put(key, whole)
        assert counted(world) == uses
        world.store.put(key, b"spoilt")
    report = Rebuild(world.repo, by="ada", drop_unreadable=True).run()
    assert (report.uses, report.left, report.removed) == (3, [], [key])
    assert key not in world.names(keys.LEDGER_SEGMENTS)
    assert counted(world) == uses


@pytest.mark.parametrize("at", range(30))
def test_who_dies_while_it_is_made_anew_leaves_it_as_it_was(world: World, at: int) -> None:
    uses = ended_jobs(world, 2)
    compaction(world.repo).turns(60)
    with suppress(Crash):
        Rebuild(world.repo_over(mortal(world.store, at=at, applied=at % 2 == 0)), by="ada").run()
    assert counted(world) == uses
    (name,) = {use.name for use in uses[:1]}
    note_use(world.repo, world.repo.find_end(*name))  # type: ignore[arg-type]
    assert counted(world) == uses


def test_what_is_compacted_while_it_is_made_anew_stays(world: World) -> None:
    uses = ended_jobs(world, 2)
    rebuilder = Actor(world.store, lambda store: Rebuild(world.repo_over(store), by="ada").run())
    while rebuilder.pending_key != keys.LEDGER or rebuilder.pending is not Operation.CREATE:
        assert rebuilder.step()
    more = ended_jobs(world, 2)
    compaction(world.repo).turns(60)
    rebuilder.finish()
    assert rebuilder.error is None
    assert counted(world) == [*uses, *more]
    assert set(places(world).values()) == {1}


def test_many_orders_of_what_may_happen(world: World) -> None:
    """Drawn: uses that come, come late or again, compactions that die anywhere, sweeps."""
    dice = random.Random(5)
    known: dict[tuple[str, int], Use] = {}
    now_ms = milliseconds(world.repo.now())
    for number in range(300):
        world.clock.sleep(dice.uniform(1, 400))
        action = dice.random()
        if action < 0.5:
            use = Use("abcdefghijklmnop", number + 1, "ada", None, ended_ms=0, wall_ms=5)
            ended_ms = milliseconds(world.repo.now()) - dice.choice([0, 0, 0, 90_000, 9_000_000])
            use = replace(use, ended_ms=max(now_ms, ended_ms))
            known[use.name] = use
            world.store.create(use_key(use), b"")
        elif action < 0.6 and known:
            with suppress(Exception):
                world.store.create(use_key(dice.choice(list(known.values()))), b"")
        elif action < 0.7:
            with suppress(Conflict):
                compaction(world.repo).sweep()
        else:
            store = mortal(world.store, at=dice.randrange(20), applied=dice.random() < 0.5)
            with suppress(Crash):
                compaction(world.repo_over(store)).turn()
        assert {use.name: use for use in counted(world)} == known
        assert len(counted(world)) == len(known)
        assert set(places(world).values()) <= {1}
    assert len(world.repo.read(LedgerIndex, keys.LEDGER).value.segments) > 5
