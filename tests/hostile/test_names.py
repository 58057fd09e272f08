"""Keys that are built from what people type, and names that are read from listings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import ids, keys
from stado.core.order import entry_name, parse_entry
from stado.core.records import Record
from stado.core.states import State
from stado.errors import Misconfigured, Refused
from stado.jobs.ownership import newest_bases_of
from stado.storage.keys import check_key
from tests.hostile.documents import job_ids, job_records
from tests.hostile.search import examples
from tests.jobs.world import World

NASTY = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a/../../b",
    "C:\\Windows\\x",
    "a\0b",
    "a\nb",
    "\x1b[2J",
    "\u202egnp.exe",
    "\ud800",
    "~" + "0" * 24,
    "x" * 100_000,
    "%2e%2e%2f",
    "a b",
    "ä",
]
words = st.sampled_from(NASTY) | st.text(max_size=40)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60)
epochs = st.integers(1, 999_999)


@examples(300)
@given(words)
def test_what_people_call_things_becomes_one_plain_component(text: str) -> None:
    component = keys.component(text)
    check_key(component)
    assert "/" not in component
    assert component == text or component.startswith("~")


@examples(200)
@given(words, words)
def test_two_names_never_share_a_component(one: str, other: str) -> None:
    assert (keys.component(one) == keys.component(other)) == (one == other)


@examples(200)
@given(words, job_ids, epochs)
def test_keys_stay_in_their_folder(text: str, job_id: str, epoch: int) -> None:
    built = {
        keys.run(text): keys.RUNS,
        keys.capacity(text): keys.CAPACITY,
        keys.by_user(text, ids.base_of(job_id)): "index/by-user/",
        keys.output_file(job_id, epoch, text): f"status/{job_id}/output/{epoch}/files/",
    }
    for key, folder in built.items():
        check_key(key)
        assert key.startswith(folder)


@examples(300)
@given(words)
def test_what_is_no_id_is_not_taken_for_one(text: str) -> None:
    if ids.is_job_id(text):
        check_key(keys.record(State.QUEUED, text))
    if ids.is_run_id(text):
        assert keys.run(text) == keys.RUNS + keys.component(text) + ".json"


@pytest.mark.parametrize("name", [*NASTY, "abcdefghijklmnop\n", "abcdefghijklmnop-1\n"])
def test_a_name_that_leads_elsewhere_is_no_job_id(name: str) -> None:
    assert not ids.is_job_id(name)


@examples(300)
@given(names | words)
def test_no_name_in_a_listing_is_too_odd_to_be_looked_at(name: str) -> None:
    """What is parsed is exactly what is built; the rest is nothing."""
    cell = keys.parse_cell(f"status/x/cells/{name}")
    assert cell is None or f"{cell[0]}.{cell[1]}.json" == name
    segment = keys.parse_log_segment(name)
    assert segment is None or keys.log_segment("x", *segment).endswith(f"/{name}")
    manifest = keys.parse_checkpoint_manifest(name)
    assert manifest is None or keys.checkpoint_manifest("x", *manifest).endswith(f"/{name}")
    folder = keys.checkpoints_folder("x")
    part = keys.parse_checkpoint_part(f"{folder}{name}", "x")
    assert part is None or name.startswith(f"{part[0]:06d}-{part[1]:06d}.")
    parse_entry(name)


@examples(200)
@given(epochs, st.integers(0, 10**16 - 1), job_ids)
def test_names_that_are_built_are_parsed(epoch: int, offset: int, job_id: str) -> None:
    sequence = offset % 999_999 + 1
    assert keys.parse_cell(keys.claim_cell(job_id, epoch)) == (epoch, "claim")
    assert keys.parse_cell(keys.end_cell(job_id, epoch)) == (epoch, "end")
    assert keys.parse_log_segment(keys.log_segment(job_id, epoch, offset)) == (epoch, offset)
    key = keys.checkpoint_manifest(job_id, epoch, sequence)
    assert keys.parse_checkpoint_manifest(key) == (epoch, sequence)
    part = keys.checkpoint_part(job_id, epoch, sequence, offset % 10**6)
    assert keys.parse_checkpoint_part(part, job_id) == (epoch, sequence)
    assert keys.parse_checkpoint_part(part, f"{job_id}x") is None
    assert keys.is_checkpoint_manifest(key, job_id)
    assert not keys.is_checkpoint_manifest(key, f"{job_id}x")
    assert not keys.is_checkpoint_manifest(part, job_id)


@pytest.mark.parametrize(
    "name",
    [
        "0.claim.json",
        "01.claim.json",
        "1000000.claim.json",
        "9" * 150 + ".end.json",
        "-1.end.json",
        "1.claim.json.bak",
        "1.other.json",
        "١.claim.json",
        "1.claim.json\n",
    ],
)
def test_no_cell_has_such_a_name(name: str) -> None:
    assert keys.parse_cell(f"status/x/cells/{name}") is None


@examples(30)
@given(job_records(State.QUEUED))
def test_an_entry_is_parsed_as_it_was_built(record: Record) -> None:
    """Whatever a queue record that can be read holds, its entry is a key and tells of it."""
    name = entry_name(record)
    check_key(keys.ready(name))
    entry = parse_entry(name)
    assert entry is not None
    assert (entry.job_id, entry.epoch, entry.priority) == (record.id, record.epoch, record.priority)
    assert name.endswith(f"~{entry.needs.encode()}")


ENTRY = "9223372036854775807-1772366400000-abcdefghijklmnop.1.abcdefgh~c1000.m1024"


@pytest.mark.parametrize(
    "name",
    [
        ENTRY.replace("9223372036854775807", "9999999999999999999"),
        ENTRY.replace(".1.", ".0."),
        ENTRY.replace(".1.", f".{'9' * 100}."),
        ENTRY.replace("c1000", f"c{'9' * 100}"),
        ENTRY.replace("c1000", "c01000"),
        ENTRY.replace("c1000.m1024", "m1024.c1000"),
        ENTRY.replace("m1024", "m1024.z1"),
        ENTRY.replace("abcdefgh~", "ABCD~"),
        ENTRY + "\n",
        ENTRY + ".",
        "../" + ENTRY,
        "!paused",
    ],
)
def test_what_no_record_computes_to_is_no_entry(name: str) -> None:
    assert parse_entry(ENTRY) is not None
    assert parse_entry(name) is None


@pytest.mark.parametrize("run_id", [*NASTY[:1], *NASTY[4:], "/", "last", "ALL"])
def test_a_run_id_that_could_mean_something_else_is_refused(run_id: str, world: World) -> None:
    with pytest.raises(Refused) as caught:
        world.submit("true", run_id=run_id or " ")
    assert caught.value.code in ("run_id_invalid", "run_id_reserved")
    assert world.names("queue/") == []


@pytest.mark.parametrize("member", ["", "-0001"])
def test_the_run_id_of_a_step_is_nobody_elses(member: str, world: World) -> None:
    """Also of one that is not launched yet, and of a job that is not there."""
    with pytest.raises(Refused, match="steps of pipelines have run ids of this form") as caught:
        world.submit("true", run_id=f"{'z' * 16}{member}.12")
    assert caught.value.code == "run_id_reserved"
    assert world.names(keys.RUNS) == []
    for run_id in (f"{'z' * 16}.x", f"{'z' * 15}.1", f"{'z' * 16}.1.2"):
        world.submit("true", run_id=run_id)


def test_a_run_id_of_dots_is_a_name_like_another(world: World) -> None:
    for run_id in (".", "..", ".hidden"):
        world.submit("true", run_id=run_id)
        assert world.has(keys.run(run_id))
    assert len(world.names("queue/")) == 3


@pytest.mark.parametrize("key", [*NASTY, "queue/../stado.json", "queue/.hidden", "queue//x"])
def test_a_store_takes_no_key_that_leads_elsewhere(key: str, world: World) -> None:
    if key in ("~" + "0" * 24, "%2e%2e%2f"):  # plain names, whatever they remind of
        check_key(key)
        return
    with pytest.raises(Misconfigured):
        world.store.put(key, b"")


def test_other_names_among_somebodys_submissions_are_passed_over(world: World) -> None:
    base = world.submit("true")
    for name in ("!", "0", "ABCDEFGHIJKLMNOP", "aaa", "aaaaaaaaaaaaaaaa.bak"):
        world.store.put(f"index/by-user/ada/{name}", b"")
    assert next(newest_bases_of(world.repo, "ada")) == base
