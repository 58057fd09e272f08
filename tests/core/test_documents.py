from __future__ import annotations

import json

import pytest

from stado.core import keys
from stado.core.documents import decode, parse
from stado.core.records import Asks, Record
from stado.core.states import State
from stado.errors import Unreadable
from tests.core.records import queued


def test_a_document_comes_back_as_it_was_written() -> None:
    record = queued()
    assert decode(Record, keys.record(State.QUEUED, record.id), record.encode()) == record
    assert json.loads(record.encode())["schema"] == 1


def test_unknown_fields_are_kept_when_a_record_is_rewritten() -> None:
    stored = json.loads(queued().encode())
    stored["colour"] = {"of": "the sky"}
    stored["spec"]["gpu"] = "later"
    record = parse(Record, "k", json.dumps(stored).encode())
    rewritten = json.loads(record.evolve(priority=7).encode())
    assert rewritten["colour"] == {"of": "the sky"}
    assert rewritten["spec"]["gpu"] == "later"
    assert rewritten["priority"] == 7


def test_a_newer_schema_is_refused_with_the_remedy() -> None:
    data = json.dumps({"schema": 2, "nonce": "n"}).encode()
    with pytest.raises(Unreadable, match=r"asks/1\.json.*schema 2 .* up to 1: upgrade stado"):
        decode(Asks, "asks/1.json", data)


def test_a_newer_schema_of_another_shape_is_refused_with_the_remedy() -> None:
    data = json.dumps({"schema": 2, "cancel": "perhaps"}).encode()
    with pytest.raises(Unreadable, match=r"schema 2 .* up to 1: upgrade stado"):
        decode(Asks, "k", data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe\x00",
        queued().encode()[:100],
        queued().encode().replace(b"true", b"tr\xffe"),
        queued().encode().replace(b'"epoch":1', b'"epoch":"one"'),
        b'{"schema":1e400}',
        b"[" * 200_000,
        b'{"a":' * 200_000,
    ],
    ids=range(10),
)
def test_anything_else_is_unreadable_and_named(data: bytes) -> None:
    """A19"""
    with pytest.raises(Unreadable, match=r"queue/x\.json is unreadable") as caught:
        decode(Record, "queue/x.json", data)
    assert caught.value.key == "queue/x.json"
