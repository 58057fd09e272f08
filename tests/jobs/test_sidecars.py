"""What a job says of its checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import msgspec
import pytest

from stado.core.sidecar import NAME, CheckpointMeta, parse_sidecar
from stado.errors import Unreadable
from stado.jobs.sidecars import write_sidecar


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"weights")
    write_sidecar(tmp_path, step=7, metric="loss", value=0.5, higher_is_better=False)
    write_sidecar(
        tmp_path, step=8, metric="loss", value=0.25, higher_is_better=False, files=["model"]
    )
    said = parse_sidecar((tmp_path / NAME).read_bytes())
    assert said.meta == CheckpointMeta(step=8, metric="loss", value=0.25, higher_is_better=False)
    assert said.files == {"model": hashlib.sha256(b"weights").hexdigest()}
    assert sorted(os.listdir(tmp_path)) == ["model", NAME]


def test_a_job_in_any_language_writes_what_it_knows() -> None:
    assert parse_sidecar(b'{"step": 3}').meta == CheckpointMeta(step=3)
    said = parse_sidecar(b'{"value": 12, "mine": [1]}')
    assert said.meta == CheckpointMeta(value=12.0)
    assert CheckpointMeta().higher_is_better


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"value": NaN}',
        '{"value": Infinity}',
        '{"value": 1e400}',
        '{"value": "12"}',
        '{"value": true}',
        '{"step": -1}',
        '{"step": 1.5}',
        '{"metric": "two words"}',
        '{"metric": "\\u001b[31m"}',
        json.dumps({"metric": "x" * 65}),
        '{"files": {"model": "abc"}}',
        '{"schema": 2}',
        "[" * 100_000,
    ],
)
def test_nonsense_is_no_sidecar(text: str) -> None:
    with pytest.raises(Unreadable, match=NAME):
        parse_sidecar(text.encode())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nonsense_is_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        write_sidecar(tmp_path, value=value)
    assert os.listdir(tmp_path) == []


def _meta(value: float | None, metric: str | None = "m", *, higher: bool = True) -> CheckpointMeta:
    return CheckpointMeta(metric=metric, value=value, higher_is_better=higher)


@pytest.mark.parametrize(
    ("new", "old", "better"),
    [
        (_meta(1), None, True),
        (_meta(None), None, False),
        (_meta(None), _meta(1), False),
        (_meta(1), _meta(None), True),
        (_meta(2), _meta(1), True),
        (_meta(1), _meta(1), False),
        (_meta(0), _meta(1), False),
        (_meta(0, higher=False), _meta(1, higher=False), True),
        (_meta(2, higher=False), _meta(1, higher=False), False),
        (_meta(0, "other"), _meta(1), True),
        (_meta(0, higher=False), _meta(-1), True),
    ],
)
def test_the_better_of_two_saves(
    new: CheckpointMeta, old: CheckpointMeta | None, better: bool
) -> None:
    assert new.is_better_than(old) is better
