"""`stado ledger`."""

from __future__ import annotations

import zlib

from stado.core import keys
from stado.jobs.ledger import Compaction, Pace
from stado.storage.port import walk
from tests.cli.conftest import Program, World
from tests.cli.test_usage import note, ran, submitted


def compact(world: World) -> None:
    Compaction(world.repo, by="coordinator", pace=Pace(names_min=1)).turns(60)


def test_what_it_has_and_what_waits(stado: Program, world: World) -> None:
    """R223"""
    assert stado("ledger", "show").stdout.splitlines() == [
        "0 epochs in 0 segments",
        "0 wait for the coordinator's next compaction",
    ]
    for number in range(3):
        note(world, number, hours=1)
    compact(world)
    note(world, 4, hours=1)
    told = stado("ledger", "show").stdout.splitlines()
    assert told[0].startswith("3 epochs in 1 segment, from 20")
    assert told[1] == "1 waits for the coordinator's next compaction"
    fields = stado.json("ledger", "show")
    assert (fields["epochs"], fields["segments"], fields["waiting"]) == (3, 1, 1)


def test_usage_is_the_same_before_and_after(stado: Program, world: World) -> None:
    """R223"""
    for number in range(5):
        note(world, number, hours=1.5, gpus=number, days_ago=number, user=f"user-{number}")
    before = stado.json("usage", "--org", "--by", "day")
    compact(world)
    after = stado.json("usage", "--org", "--by", "day")
    assert after["groups"] == before["groups"]
    assert after["total"] == before["total"]


def test_a_spoilt_segment_is_told_and_made_anew(stado: Program, world: World) -> None:
    """R223: by its verdicts."""
    job = submitted(stado, "one")
    ran(world, job, hours=2)
    compact(world)
    (entry,) = walk(world.repo.store, keys.LEDGER_SEGMENTS)
    world.repo.store.put(entry.key, b"spoilt")
    result = stado("usage")
    assert f"{entry.key} cannot be read, and what it holds is not counted" in result.stderr
    assert stado.json("usage")["unreadable_segments"] == [entry.key]
    result = stado("ledger", "rebuild")
    assert result.stdout == (
        "1 epoch in 1 segment: 1 that it did not have, 0 whose verdicts are gone\n"
    )
    assert f"{entry.key} could not be read, and stays: with --drop-unreadable" in result.stderr
    assert stado.json("usage")["total"]["wall_seconds"] == 7200
    fields = stado.json("ledger", "rebuild")
    assert (fields["found"], fields["left"], fields["removed"]) == (0, [entry.key], [])
    result = stado("ledger", "rebuild", "--drop-unreadable")
    assert f"{entry.key} could not be read, and was deleted" in result.stderr
    assert stado.json("usage")["unreadable_segments"] == []
    assert stado.json("ledger", "rebuild", "--drop-unreadable")["removed"] == []


def test_what_a_newer_program_wrote_is_not_made_anew(stado: Program, world: World) -> None:
    """R223"""
    note(world, 1, hours=1)
    compact(world)
    (entry,) = walk(world.repo.store, keys.LEDGER_SEGMENTS)
    newer = zlib.compress(b'{"schema": 3, "rows": {}}')
    world.repo.store.put(entry.key, newer)
    result = stado("ledger", "rebuild", "--drop-unreadable")
    assert result.exit_code != 0
    assert "it has schema 3 and this stado knows up to 2: upgrade stado" in result.stderr
    assert world.repo.store.get(entry.key).data == newer


def test_an_index_that_cannot_be_read_is_no_empty_one(stado: Program, world: World) -> None:
    """R223: unknown is never nothing."""
    note(world, 1, hours=1)
    compact(world)
    world.repo.store.put(keys.LEDGER, b"[]")
    result = stado("usage")
    assert result.exit_code != 0
    assert keys.LEDGER in result.stderr
    assert stado("ledger", "rebuild").exit_code == 0
    assert stado("usage").exit_code == 0
