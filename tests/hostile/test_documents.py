"""Whatever lies under a key: it is read as what it is, or it is `Unreadable`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.documents import Document, decode, parse
from stado.core.records import (
    Asks,
    Checkpoint,
    ClaimCell,
    CoordinatorLease,
    Deployment,
    EndCell,
    Heartbeat,
    Record,
    RunRecord,
)
from stado.core.states import State
from stado.errors import Unreadable
from tests.core.records import queued
from tests.hostile.documents import KINDS, anything, documents
from tests.hostile.search import examples

KEY = "some/key.json"

kinds = st.sampled_from(KINDS)
valid = kinds.flatmap(documents)


def read(kind: type[Document], data: bytes) -> Document | None:
    """None when it is unreadable; any other error fails the test."""
    try:
        return parse(kind, KEY, data)
    except Unreadable as error:
        problem = error
    assert problem.key == KEY
    assert len(str(problem)) < 1000
    return None


def assert_usable(document: Document | None) -> None:
    """What has been read can be written, and is the same then."""
    if document is not None:
        assert parse(type(document), KEY, document.encode()) == document


@examples(60)
@given(valid)
def test_what_is_written_is_read_as_it_was(document: Document) -> None:
    key = document.own_key() or KEY
    assert decode(type(document), key, document.encode()) == document


@examples(200)
@given(kinds, st.binary(max_size=200))
def test_any_bytes(kind: type[Document], data: bytes) -> None:
    assert_usable(read(kind, data))


@examples(200)
@given(kinds, anything)
def test_any_json(kind: type[Document], value: Any) -> None:
    assert_usable(read(kind, json.dumps(value).encode()))


@examples(30)
@given(valid, st.floats(0, 1, exclude_max=True))
def test_a_document_that_was_cut_off(document: Document, where: float) -> None:
    data = document.encode()
    assert read(type(document), data[: int(len(data) * where)]) is None


@examples(60)
@given(valid, st.data())
def test_a_bit_of_it_is_something_else(document: Document, data: st.DataObject) -> None:
    """One value, anywhere in it, is exchanged for another of any type."""
    fields = json.loads(document.encode())
    place = fields
    for _ in range(4):
        name = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[name], dict) or not place[name] or data.draw(st.booleans()):
            break
        place = place[name]
    extreme = st.sampled_from([-1, 0, 10**18, -(10**18), 10**400, 1e308, -1e308, "x" * 5000, "\0"])
    place[name] = data.draw(anything | extreme)
    assert_usable(read(type(document), json.dumps(fields).encode()))


@examples(40)
@given(valid, st.integers(0, 10**6), st.integers(0, 255))
def test_a_byte_of_it_is_another(document: Document, at: int, byte: int) -> None:
    data = bytearray(document.encode())
    data[at % len(data)] = byte
    assert_usable(read(type(document), bytes(data)))


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":', b'{"files":[', b'{"spec":{"z":'])
@pytest.mark.parametrize("depth", [70, 300, 600, 900, 1500, 100_000])
@pytest.mark.parametrize("kind", [Asks, Record, Checkpoint])
def test_brackets_within_brackets(kind: type[Document], opening: bytes, depth: int) -> None:
    closing = b"".join({91: b"]", 123: b"}"}[c] for c in reversed(opening) if c in b"[{")
    assert read(kind, opening * depth + b"1" + closing * depth) is None


@pytest.mark.parametrize("depth", [70, 300, 480, 600, 900])
def test_an_unknown_field_that_is_too_deep_to_be_written_again(depth: int) -> None:
    data = b'{"nonce":"n","later":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    assert read(Asks, data) is None


def test_an_unknown_field_of_some_depth_is_kept() -> None:
    data = b'{"nonce":"n","later":' + b"[" * 40 + b"]" * 40 + b"}"
    found = read(Asks, data)
    assert found is not None
    assert data[len('{"nonce":"n",') :] in found.encode()


NUMBERS = [b"1e999", b"-1e999", b"1" * 5000, b"NaN", b"Infinity", b"-Infinity", b"1e308", b"-1"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:9].decode())
@pytest.mark.parametrize("field", ["epoch", "priority", "queued_ms", "starts", "lease_losses"])
def test_numbers_that_cannot_be(field: str, number: bytes) -> None:
    stated = json.loads(queued().encode())
    data = json.dumps({**stated, field: "HERE"}).encode().replace(b'"HERE"', number)
    assert read(Record, data) is None


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:9].decode())
@pytest.mark.parametrize("field", ["cpu", "memory_gb"])
def test_amounts_that_no_host_has(field: str, number: bytes) -> None:
    stated = json.loads(queued().encode())
    stated["spec"][field] = "HERE"
    assert read(Record, json.dumps(stated).encode().replace(b'"HERE"', number)) is None


@pytest.mark.parametrize("seconds", [0, -1, 1e-300, 1e300, 86_401])
@pytest.mark.parametrize("kind", [Deployment, CoordinatorLease])
def test_a_lease_by_which_nobody_can_live(kind: type[Document], seconds: float) -> None:
    base = {
        "token": "t",
        "holder": "h",
        "counter": 1,
        "at": "2026-01-01T00:00:00Z",
        "deployment_id": "d",
        "created_at": "2026-01-01T00:00:00Z",
        "created_by": "ada",
        "proof": {"create_if_absent": True, "compare_and_swap": True, "conditional_delete": True},
    }
    assert read(kind, json.dumps({**base, "lease_seconds": 120}).encode()) is not None
    assert read(kind, json.dumps({**base, "lease_seconds": seconds}).encode()) is None


@pytest.mark.parametrize(
    "data",
    [
        b'\xef\xbb\xbf{"nonce":"n"}',
        b'{"nonce":"\\ud800"}',
        b'{"nonce":"n","\\udc80":1}',
        b'{"nonce":"\xff"}',
        b'{"nonce":"\xed\xa0\x80"}',
        '{"nonce":"n"}'.encode("utf-16"),
        b'{"nonce":"n"} {"nonce":"n"}',
        b'{"nonce":NaN}',
    ],
    ids=["BOM", "surrogate", "surrogate name", "no UTF-8", "WTF-8", "UTF-16", "two", "NaN"],
)
def test_text_that_is_none(data: bytes) -> None:
    assert read(Asks, data) is None


def test_of_a_field_that_is_there_twice_the_last_counts() -> None:
    found = read(Asks, b'{"nonce":"n","cancel":true,"cancel":false}')
    assert isinstance(found, Asks)
    assert not found.cancel


def test_a_long_text_is_read_and_a_long_wrong_one_is_not_quoted_in_full() -> None:
    long = "x" * 10_000_000
    found = read(Asks, json.dumps({"nonce": long}).encode())
    assert isinstance(found, Asks)
    assert found.nonce == long
    with pytest.raises(Unreadable) as caught:
        parse(Heartbeat, KEY, json.dumps({"epoch": 1, "phase": long}).encode())
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["command", "verify", "host_dir"])
def test_a_command_that_no_host_can_start(name: str) -> None:
    stated = json.loads(queued().encode())
    stated["spec"][name] = "/bin/true\0"
    assert read(Record, json.dumps(stated).encode()) is None


@pytest.mark.parametrize("name", ["", "A=B", "A\0", "A\n", "1A", "ä"])
def test_an_environment_that_no_host_can_set(name: str) -> None:
    stated = json.loads(queued().encode())
    stated["spec"]["environment"] = {name: "value"}
    assert read(Record, json.dumps(stated).encode()) is None


@pytest.mark.parametrize("value", ["text", {"a": 1}, None, 7])
def test_a_field_that_is_called_like_our_own_drawer_is_kept(value: Any) -> None:
    stated = json.loads(queued().encode())
    stated["unknown_fields"] = value
    stated["later"] = {"unknown_fields": value, "beside": 1}
    stated["spec"]["environment"] = {"unknown_fields": "a variable"}
    record = parse(Record, KEY, json.dumps(stated).encode())
    assert record.spec.environment == {"unknown_fields": "a variable"}
    assert json.loads(record.encode()) == stated


# Documents that belong elsewhere


OTHER = "zzzzzzzzzzzzzzzz"


def test_a_record_of_another_job_does_not_speak_for_this_one() -> None:
    data = queued().encode()
    with pytest.raises(Unreadable, match=r"it belongs under queue/abcdefghijklmnop\.json"):
        decode(Record, keys.record(State.QUEUED, OTHER), data)
    with pytest.raises(Unreadable, match="it belongs under queue/"):
        decode(Record, keys.record(State.RUNNING, "abcdefghijklmnop"), data)


@examples(20)
@given(st.sampled_from([ClaimCell, EndCell, Record, RunRecord, Checkpoint]).flatmap(documents))
def test_what_was_copied_to_another_key_is_unreadable_there(document: Document) -> None:
    with pytest.raises(Unreadable, match="it belongs under"):
        decode(type(document), KEY, document.encode())


@examples(20)
@given(documents(Checkpoint), st.sampled_from(["stado.json", "queue/x.json", "../x", "status/"]))
def test_a_checkpoint_has_no_parts_but_its_own(document: Document, part: str) -> None:
    fields = json.loads(document.encode())
    fields["files"] = [{"path": "model", "size": 1, "sha256": "", "parts": [part]}]
    assert read(Checkpoint, json.dumps(fields).encode()) is None


@pytest.mark.parametrize("count", [0, 2, 10**12, 2**63 - 1])
def test_a_run_that_counts_other_jobs_than_it_has(count: int) -> None:
    fields = {
        "run_id": "run",
        "token": "abcdefgh",
        "digest": "",
        "request": {"batch": True, "commands": ["true"], "shared": {"command": ""}},
        "base_id": "abcdefghijklmnop",
        "count": 1,
        "submitted_at": "2026-01-01T00:00:00Z",
        "submitter": "ada",
    }
    assert read(RunRecord, json.dumps(fields).encode()) is not None
    assert read(RunRecord, json.dumps({**fields, "count": count}).encode()) is None
