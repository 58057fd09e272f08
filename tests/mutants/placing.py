"""Letting in, kept room and who makes room, without one of the rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from stado.core import yields
from stado.core.admission import Card, Offer, Reservation
from stado.core.order import Needs, ReadyEntry
from stado.core.yields import Running
from stado.jobs.claim import Place
from stado.jobs.rooms import KeptRoom, Rooms
from stado_agent import making_room
from stado_agent.making_room import HostNow, RoomMaker
from tests.mutants.mutant import Mutant, replaced, replaced_everywhere

ROOM = "tests/agent/test_room.py"
STAGE = "tests/simulation/test_every_fault.py::test_without_a_fault_a_scenario_is_what_it_says"
MAKE_ROOM = {"name": "make-room"}

_less = Offer.less
_choose_victims = making_room.choose_victims
_turn = RoomMaker._make_room


def less_without_cards(self: Offer, given: Reservation) -> Offer:
    return replace(_less(self, given), cards=self.cards)


def card_less_without_parts(self: Card, needs: Needs) -> Card:
    return replace(self, taken=True, closed=bool(needs.gpus))


def less_without_exclusive(self: Offer, given: Reservation) -> Offer:
    return replace(_less(self, given), closed=False)


def keep_nothing(
    self: RoomMaker, left: Offer, in_hand: Collection[str]
) -> Callable[[ReadyEntry], bool]:
    return lambda _: False


def all_there_is(
    self: RoomMaker, entry: ReadyEntry, left: Offer, in_hand: Collection[str]
) -> Offer:
    return left


def all_that_may(
    priority: int,
    running: Sequence[Running],
    fits_without: Callable[[Sequence[Running]], bool],
) -> list[Running]:
    """Be there any gain in it or not."""
    return [one for one in running if one.yields_left > 0 and one.priority < priority]


def all_where_it_helps(
    priority: int,
    running: Sequence[Running],
    fits_without: Callable[[Sequence[Running]], bool],
) -> list[Running]:
    able = all_that_may(priority, running, fits_without)
    return able if fits_without(able) else []


def whoever_runs(
    priority: int,
    running: Sequence[Running],
    fits_without: Callable[[Sequence[Running]], bool],
) -> list[Running]:
    unspent = [replace(one, yields_left=1) for one in running]
    return _choose_victims(priority, unspent, fits_without)


def forget_who_goes(
    self: RoomMaker, entry: ReadyEntry, host: HostNow, going: Sequence[Running] = ()
) -> list[Running]:
    asked = {one.job_id for one in going}
    chosen = _choose_victims(
        entry.priority, host.running, lambda gone: self._fits(entry, host.without(gone))
    )
    return [one for one in chosen if one.job_id not in asked]


def keep_what_is_freest(self: RoomMaker, kept: making_room._Kept, host: HostNow) -> None:
    _turn(self, kept, host)
    kept.cards = ()


def keep_as_well(self: Rooms, job_id: str) -> KeptRoom | None:
    note = self._new_note(job_id)
    return KeptRoom(note, self._repo.store.put(note.own_key(), note.encode()))


def leave_the_note(self: Rooms, room: KeptRoom) -> None:
    """It stays."""


MUTANTS = (
    Mutant(
        "cards are given twice",
        "A card that a job has is given to no other.",
        f"{ROOM}::test_two_trainings_never_have_one_card",
        replaced(Offer, "less", less_without_cards),
    ),
    Mutant(
        "parts of a card cost nothing",
        "Parts of a card are given until its memory is spent.",
        f"{ROOM}::test_parts_of_a_card_run_beside_each_other",
        replaced(Card, "less", card_less_without_parts),
    ),
    Mutant(
        "nobody has a host for itself",
        "Nothing starts beside a job that has its host for itself.",
        "tests/core/test_admission.py"
        "::test_a_job_that_wants_the_host_for_itself_starts_on_an_idle_one",
        replaced(Offer, "less", less_without_exclusive),
    ),
    Mutant(
        "room is not kept",
        "What gets free where room is kept goes to who waits for it.",
        STAGE,
        replaced(RoomMaker, "kept_from", keep_nothing),
        MAKE_ROOM,
    ),
    Mutant(
        "kept cards are given",
        "Who is let in beside kept room gets none of the cards that are kept.",
        f"{ROOM}::test_who_is_let_in_beside_a_kept_card_gets_another_one",
        replaced(RoomMaker, "open_to", all_there_is),
    ),
    Mutant(
        "what is kept is not what gets free",
        "The cards are kept that those who make room leave.",
        f"{ROOM}::test_the_card_that_gets_free_is_kept_and_not_a_freer_one_that_stays_in_use",
        replaced(RoomMaker, "_make_room", keep_what_is_freest),
    ),
    Mutant(
        "room is kept from everybody",
        "Room is kept from those alone that stand behind who waits for it.",
        f"{ROOM}::test_who_stands_before_the_job_is_still_let_in",
        replaced(RoomMaker, "_stands_behind", lambda *_: True),
    ),
    Mutant(
        "two hosts keep room for one job",
        "One host keeps room for a job.",
        f"{ROOM}::test_one_host_keeps_room_for_a_job",
        replaced(Rooms, "keep", keep_as_well),
    ),
    Mutant(
        "notes of kept room stay",
        "A note of kept room goes once its job is started.",
        STAGE,
        replaced(Rooms, "give_up", leave_the_note),
        MAKE_ROOM,
    ),
    Mutant(
        "jobs make room in vain",
        "Nobody is asked for room where all who may give it would not do.",
        f"{ROOM}::test_nothing_is_stopped_in_vain",
        replaced(making_room, "choose_victims", all_that_may),
    ),
    Mutant(
        "more jobs make room than it takes",
        "No more jobs are asked for room than it takes.",
        STAGE,
        replaced(making_room, "choose_victims", all_where_it_helps),
        MAKE_ROOM,
    ),
    Mutant(
        "others are asked beside those that go anyway",
        "Those that were asked before are counted on.",
        f"{ROOM}::test_who_goes_anyway_is_counted_on_before_others_are_asked",
        replaced(RoomMaker, "_victims", forget_who_goes),
    ),
    Mutant(
        "protected jobs are asked for room",
        "A job whose yields are spent is asked for no room.",
        "tests/core/test_yields.py::test_who_may_not_yield_any_more_is_passed_over",
        replaced_everywhere(yields, "choose_victims", whoever_runs),
    ),
    Mutant(
        "names say all that is asked for",
        "What an entry's name has no room for is looked up in the record at the claim.",
        "tests/jobs/test_claim.py"
        "::test_a_host_that_lacks_one_of_five_things_that_are_asked_for_does_not_claim",
        replaced(Place, "is_for", lambda *_: True),
    ),
)
