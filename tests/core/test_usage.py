from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stado.core import keys, moves
from stado.core.documents import COUNT_MAX, decode
from stado.core.ids import milliseconds
from stado.core.records import EndCell, Ending, Heartbeat, Phase, Ran, Record, StoreRequests, Usage
from stado.core.spec import Step, StepOf
from stado.core.states import JobType, Reason, Verdict
from stado.core.usage import (
    DAY_MS,
    Use,
    digest_word,
    is_understood,
    parse_use,
    ran_until,
    use_key,
    use_name,
    use_of,
    use_so_far,
    used_so_far,
)
from stado.storage.keys import check_key
from tests.core.records import HOLDER, NOW, queued

HOUR = timedelta(hours=1)
USE = Use("abcdefghijklmnop", 3, "ada", None, ended_ms=milliseconds(NOW), wall_ms=90_000)


def running(*, gpus: int = 0, gpu_share: float = 1.0, **changes: object) -> Record:
    record = queued(**changes)
    return moves.claimed(record, HOLDER.evolve(gpus=gpus, gpu_share=gpu_share))


def ended(record: Record, ran: Ran | None, verdict: Verdict = Verdict.COMPLETED) -> EndCell:
    started_at = ran.began_at if ran is not None else None
    ending = Ending(verdict=verdict, started_at=started_at, ended_at=NOW + HOUR, ran=ran, by="a")
    return EndCell(token="t" * 16, ending=ending, record=moves.ended(record, ending))


def beat(record: Record, **fields: object) -> Heartbeat:
    assert record.holder is not None
    known = {"phase": Phase.RUNNING, "started_at": NOW, "at": NOW + HOUR} | fields
    return Heartbeat(epoch=1, token=record.holder.token, by="alice", **known)  # type: ignore[arg-type]


# --- what counts --------------------------------------------------------------------------


def test_gpus_count_for_as_long_as_the_command_ran() -> None:
    """R26, R27, R63: time in the queue, before the start and after the end is not in it."""
    record = running(gpus=2)
    ran = ran_until(record, NOW + HOUR, started_at=NOW + HOUR / 2)
    use = use_of(ended(record, ran))
    assert use is not None
    assert (use.wall_ms, use.gpus, use.estimated) == (1_800_000, 2, False)


def test_what_never_ran_has_no_use() -> None:
    """R25"""
    cell = ended(running(gpus=2), ran_until(running(), NOW + HOUR, started_at=None))
    assert use_of(cell) is None
    assert cell.record.usage == Usage()


def test_shared_gpus_count_whole_and_their_part_is_a_second_figure() -> None:
    record = running(gpus=2, gpu_share=0.25)
    cell = ended(record, Ran(began_at=NOW, ended_at=NOW + HOUR))
    assert cell.record.usage == Usage(wall_ms=3_600_000, gpu_ms=7_200_000, gpu_share_ms=1_800_000)


def test_a_job_on_cores_alone_keeps_its_time() -> None:
    cell = ended(running(), Ran(began_at=NOW, ended_at=NOW + HOUR))
    assert cell.record.usage == Usage(wall_ms=3_600_000)


def test_a_jobs_figure_is_the_sum_over_its_epochs() -> None:
    """R27"""
    lost = ended(running(gpus=1), Ran(began_at=NOW, ended_at=NOW + HOUR, estimated=True))
    record = moves.claimed(moves.after(lost), HOLDER.evolve(gpus=4))
    cell = ended(record, Ran(began_at=NOW, ended_at=NOW + HOUR))
    assert cell.record.usage == Usage(
        wall_ms=7_200_000, gpu_ms=18_000_000, gpu_share_ms=18_000_000, estimated=True
    )


def test_what_was_adopted_counts_from_where_the_epoch_before_ended() -> None:
    lost = ended(running(), Ran(began_at=NOW, ended_at=NOW + HOUR, estimated=True), Verdict.LOST)
    record = moves.claimed(moves.after(lost), HOLDER.evolve(adopted=True))
    ran = ran_until(record, NOW + 3 * HOUR, started_at=NOW)
    assert ran == Ran(began_at=NOW + HOUR, ended_at=NOW + 3 * HOUR)
    other = moves.claimed(moves.after(lost), HOLDER)
    assert ran_until(other, NOW + 3 * HOUR, started_at=NOW) == ran.evolve(began_at=NOW)


def test_a_lost_epoch_counts_until_it_was_heard_last() -> None:
    loss = moves.Loss(
        started_at=NOW,
        heard_at=NOW + HOUR,
        by="reaper",
        reason=Reason.LEASE_EXPIRED,
        detail="silent",
    )
    ending = moves.lost(running(), loss, now=NOW + 2 * HOUR)
    assert ending.ran == Ran(began_at=NOW, ended_at=NOW + HOUR, estimated=True)


def test_a_sum_that_somebody_has_made_huge_can_still_be_stored() -> None:
    record = running(gpus=9_999, usage=Usage(wall_ms=COUNT_MAX, gpu_ms=COUNT_MAX))
    cell = ended(record, Ran(began_at=NOW, ended_at=NOW + HOUR))
    assert decode(EndCell, cell.own_key(), cell.encode()).record.usage.gpu_ms == COUNT_MAX


# --- what runs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "fields", "wall", "estimated"),
    [
        (60, {}, 3660, False),
        (121, {}, 3600, True),
        (60, {"sealed": True, "heard_at": NOW + HOUR / 2}, 1800, True),
        (60, {"phase": Phase.UPLOADING, "phase_since": NOW + HOUR / 4}, 900, False),
        (121, {"phase": Phase.UPLOADING, "phase_since": NOW + HOUR / 4}, 900, False),
    ],
    ids=["runs", "silent", "sealed", "uploads", "uploads silently"],
)
def test_what_runs_counts_up_to_now_or_as_long_as_it_is_known_to(
    seconds: int, fields: dict[str, object], wall: int, estimated: bool
) -> None:
    record = running(gpus=1)
    use = use_so_far(record, beat(record, **fields), NOW + HOUR + timedelta(seconds=seconds))
    assert use is not None
    assert (use.wall_ms, use.estimated) == (wall * 1000, estimated)


def test_what_has_not_started_has_used_nothing() -> None:
    """R25"""
    record = running()
    assert use_so_far(record, None, NOW) is None
    assert use_so_far(record, beat(record, started_at=None), NOW) is None
    assert use_so_far(record.evolve(epoch=2), beat(record), NOW) is None
    assert used_so_far(record, beat(record), NOW).wall_ms == 3_600_000


# --- names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        USE,
        replace(USE, gpus=8, share_milli=4_500, estimated=True),
        replace(USE, job_id="abcdefghijklmnop-0001", root="ponmlkjihgfedcba", epoch=999_999),
        replace(USE, user="Jörg ~/= Müller@host"),
        replace(USE, whole=True, model="org/resnet:v2", hardware="2x a100-sxm4-80gb"),
        replace(USE, ended_ms=10**13 - 1, wall_ms=10**13 - 1, gpus=9_999, share_milli=9_999_000),
        replace(USE, dear=12, cheap=0, received_bytes=10**9, sent_bytes=345),
    ],
)
def test_a_name_says_all_of_it(use: Use) -> None:
    assert parse_use(use_name(use)) == use
    check_key(use_key(use))


@pytest.mark.parametrize("user", ["", "x" * 91, "ß" * 200, "\udcff" * 40])
def test_the_name_of_a_user_that_is_too_long_is_a_digest(user: str) -> None:
    use = replace(USE, job_id="abcdefghijklmnop-100000", root="a" * 16, user=user, gpus=9_999)
    check_key(use_key(use))
    told = parse_use(use_name(use))
    assert told is not None
    assert told.user == digest_word(user)
    assert told.user.startswith("!")


@pytest.mark.parametrize(("user", "model", "hardware"), [(50, 10, 16), (40, 70, 16), (88, 88, 88)])
def test_a_name_has_room_for_a_user_a_model_and_hardware_however_long_they_are(
    user: int, model: int, hardware: int
) -> None:
    """The longest is told as a digest, and the next ones where that is not enough."""
    long = replace(USE, job_id="abcdefghijklmnop-100000", epoch=999_999, root="a" * 16, whole=True)
    use = replace(long, user="u" * user, model="m" * model, hardware="h" * hardware)
    check_key(use_key(use))
    told = parse_use(use_name(use))
    assert told is not None
    plain = (told.user == use.user, told.model == use.model, told.hardware == use.hardware)
    assert plain == (user < 88, model == 10, hardware == 16)
    assert told.user in (use.user, digest_word("u" * user))


@given(
    words=st.lists(st.text(min_size=1, max_size=120), min_size=5, max_size=5),
    figures=st.lists(st.integers(0, 10**13 - 1), min_size=9, max_size=9),
    root=st.sampled_from([None, "a" * 16]),
    number=st.sampled_from(["", "-1", "-0001", "-100000"]),
)
def test_a_name_of_whatever_there_is_to_say_fits_a_key(
    words: list[str], figures: list[int], root: str | None, number: str
) -> None:
    """Otherwise no job of it could be settled; and who reads it takes it for what was written."""
    user, model, hardware, consumer, schedule = words
    ended, wall, price, part, output, dear, cheap, received, sent = figures
    use = replace(USE, job_id="abcdefghijklmnop" + number, epoch=999_999, root=root, whole=True)
    use = replace(use, ended_ms=ended, wall_ms=min(ended, wall), gpus=9_999, share_milli=9_999_000)
    use = replace(use, user=user, model=model, hardware=hardware, consumer=consumer)
    use = replace(use, schedule=schedule, verdict=Verdict.COMPLETED, price_micro=price)
    use = replace(use, part_micro=part, output_bytes=output)
    use = replace(use, dear=dear, cheap=cheap, received_bytes=received, sent_bytes=sent)
    name = use_name(use)
    check_key(keys.usage(name))
    told = parse_use(name)
    assert told is not None
    assert is_understood(name, told)
    assert (told.job_id, told.ended_ms, told.wall_ms) == (use.job_id, use.ended_ms, use.wall_ms)


def test_an_ordinary_name_of_all_there_is_to_say_says_all_of_it() -> None:
    use = replace(USE, job_id="abcdefghijklmnop", user="ada@lab.example.org", whole=True)
    use = replace(use, model="acme/vlm-7b-instruct-v2", hardware="8x a100-sxm4-80gb")
    use = replace(use, consumer="slurm@cluster-login-node-17", schedule="nightly-regressions")
    use = replace(use, verdict=Verdict.COMPLETED, price_micro=98_320_000, part_micro=1_000_000)
    told = parse_use(use_name(use))
    assert told is not None
    assert None not in (told.user, told.model, told.hardware, told.consumer, told.schedule)


def test_no_word_is_cut_for_what_was_asked_of_the_store() -> None:
    """R260: figures that find no room are left out together, and then unknown."""
    asked = {"dear": 12, "cheap": 150, "received_bytes": 123_456_789, "sent_bytes": 12_345}
    use = replace(USE, user="u" * 60, model="m" * 40, hardware="h" * 20)
    assert parse_use(use_name(replace(use, **asked))) == use  # type: ignore[arg-type]
    short = replace(use, user="u" * 20, **asked)  # type: ignore[arg-type]
    assert parse_use(use_name(short)) == short


def test_a_use_has_what_its_holder_asked_of_the_store() -> None:
    """R260: what nobody told is unknown, and not nothing."""
    cell = ended(running(), Ran(began_at=NOW, ended_at=NOW + HOUR))
    use = use_of(cell)
    assert use is not None
    assert not use.is_metered
    asked = StoreRequests(dear=12, cheap=7, received_bytes=COUNT_MAX, sent_bytes=0)
    use = use_of(cell.evolve(ending=cell.ending.evolve(requests=asked)))
    assert use is not None
    assert (use.dear, use.cheap, use.received_bytes, use.sent_bytes) == (12, 7, 10**13 - 1, 0)


def test_a_run_is_whole_where_one_epoch_ran_all_of_a_job_that_completed() -> None:
    """R160: what was lost or paused on the way, or failed, says nothing of a run time."""
    record = running()
    ran = ran_until(record, NOW + HOUR, started_at=NOW)
    before = running(usage=Usage(wall_ms=5))
    guessed = ran_until(record, NOW + HOUR, started_at=NOW, estimated=True)
    cells = [
        ended(record, ran),
        ended(record, ran, Verdict.FAILED),
        ended(before, ran),
        ended(record, guessed),
    ]
    uses = [use_of(cell) for cell in cells]
    assert [use is not None and use.whole for use in uses] == [True, False, False, False]


def test_figures_and_words_of_later_versions_are_passed_over() -> None:
    name = use_name(USE)
    newer = name.replace(".e0", ".e0.z7") + "~zanything"
    assert parse_use(newer) == USE


@pytest.mark.parametrize(
    "name",
    ["", "x", "1~w1", use_name(USE).replace("w90000", "w-1"), use_name(USE).replace(".g0", "")],
)
def test_what_is_no_name_is_passed_over(name: str) -> None:
    assert parse_use(name) is None


def test_a_step_names_the_job_that_its_pipeline_began_with() -> None:
    ran = Ran(began_at=NOW, ended_at=NOW + HOUR)
    step = Step(name="eval", command="true", type=JobType.EVAL)
    spec = queued().spec
    steps = {
        None: spec,
        "abcdefghijklmnop": spec.evolve(then=[step]),
        "ponmlkjihgfedcba": spec.evolve(
            step_of=StepOf(root="ponmlkjihgfedcba", number=1, name="e")
        ),
    }
    for root, one in steps.items():
        use = use_of(ended(running(spec=one), ran))
        assert use is not None
        assert use.root == root


# --- parts --------------------------------------------------------------------------------


def test_only_what_came_after_a_moment_counts() -> None:
    now = milliseconds(NOW)
    assert USE.since(now - 90_000) == USE
    assert USE.since(now - 30_000) == replace(USE, wall_ms=30_000)
    assert USE.since(now) is None


def test_a_use_over_midnight_falls_on_both_days() -> None:
    midnight = milliseconds(NOW) // DAY_MS * DAY_MS
    use = replace(USE, ended_ms=midnight + 1_000, wall_ms=DAY_MS + 3_000)
    assert [(day, part.wall_ms) for day, part in use.by_day()] == [
        ("2026-02-27", 2_000),
        ("2026-02-28", DAY_MS),
        ("2026-03-01", 1_000),
    ]
    asked = {"dear": 12, "cheap": 7, "received_bytes": 5, "sent_bytes": 3, "output_bytes": 9}
    parts = [part for _, part in replace(use, **asked).by_day()]  # type: ignore[arg-type]
    assert [(part.dear, part.output_bytes) for part in parts] == [(0, 0), (0, 0), (12, 9)]
    short = replace(USE, ended_ms=midnight, wall_ms=0)
    assert [day for day, _ in short.by_day()] == ["2026-03-01"]
