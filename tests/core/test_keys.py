from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.states import State
from stado.storage.keys import check_key

JOB = "abcdefghijklmnop-07"


def test_each_state_has_its_prefix() -> None:
    """R175"""
    assert [keys.prefix(state) for state in State] == [
        "queue/",
        "running/",
        "paused/",
        "completed/",
        "failed/",
        "cancelled/",
        "timed_out/",
    ]


@pytest.mark.parametrize("state", State)
def test_a_record_key_tells_its_job(state: State) -> None:
    assert keys.job_of_record(keys.record(state, JOB)) == JOB


@pytest.mark.parametrize("text", ["ada", "ada@host.example", "x" * 195, "a.b_c+d-e"])
def test_a_plain_name_is_its_own_component(text: str) -> None:
    assert keys.component(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", ".profile", "a b", "a/b", "żółw", "x" * 196, "~a"])
def test_what_does_not_fit_becomes_a_short_hash(text: str) -> None:
    hashed = keys.component(text)
    assert hashed.startswith("~")
    assert len(hashed) == 25
    assert hashed != keys.component(text + "x")


@given(st.text(max_size=300))
def test_any_name_makes_keys_that_every_store_takes(name: str) -> None:
    check_key(keys.capacity(name))
    check_key(keys.by_user(name, "abcdefghijklmnop"))
    check_key(keys.output_file(JOB, 1, name))


@given(st.from_regex(r"[A-Za-z0-9._@+-]{1,100}", fullmatch=True))
def test_any_run_id_makes_a_key_that_every_store_takes(run_id: str) -> None:
    """R129"""
    check_key(keys.run(run_id))


def test_two_run_ids_never_share_a_key() -> None:
    run_ids = [".a", "a", "..a", "-a", "a.", ".", ".."]
    assert len({keys.run(run_id) for run_id in run_ids}) == len(run_ids)


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        (keys.claim_cell(JOB, 1), (1, "claim")),
        (keys.end_cell(JOB, 12), (12, "end")),
        (f"status/{JOB}/cells/3.open.json", (3, "open")),
        (f"status/{JOB}/cells/0.claim.json", None),
        (f"status/{JOB}/cells/01.claim.json", None),
        (f"status/{JOB}/cells/1.seal.json", None),
        (f"status/{JOB}/cells/.1.claim.json", None),
    ],
)
def test_cells_are_parsed_from_their_keys(key: str, parsed: tuple[int, str] | None) -> None:
    assert keys.parse_cell(key) == parsed


def test_log_segments_and_checkpoints_are_parsed_and_sort_in_the_order_of_writing() -> None:
    segments = [keys.log_segment(JOB, epoch, seq) for epoch in (1, 2, 10) for seq in (0, 9, 10)]
    assert segments == sorted(segments)
    assert keys.parse_log_segment(segments[-1]) == (10, 10)
    assert all(key.startswith(keys.log_segments_of(JOB, 10)) for key in segments[-3:])
    manifest = keys.checkpoint_manifest(JOB, 2, 5)
    assert keys.parse_checkpoint_manifest(manifest) == (2, 5)
    part = keys.checkpoint_part(JOB, 2, 5, 7)
    assert keys.parse_checkpoint_manifest(part) is None
    assert part < manifest < keys.checkpoint_part(JOB, 2, 6, 0)
