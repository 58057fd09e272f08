"""Pipelines: what follows what, what it takes along, and one word for all of it (R57-R62)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stado.core import pipelines
from stado.core.pipelines import PipelineState, parse_step, roll_up, skipped
from stado.core.spec import GitRepo, Input, Spec, StartFrom, Step, make_request
from stado.core.states import JobType, Kind, State
from stado.errors import Refused
from tests.core.records import NOW, queued

EXPORT, EVAL, NOTIFY = (Step(name=name, command=f"./{name}") for name in ("export", "eval", "tell"))
DONE, FAILED, RUNS, WAITS = State.COMPLETED, State.FAILED, State.RUNNING, State.QUEUED
LEFT = Input(name="root", source="status/abcdefghijklmnop/output/1/manifest.json", sha256="a" * 64)
SAVE = StartFrom(
    policy="policy_abcdefghijklmnop", kind=Kind.BEST, manifest="status/x", sha256="b" * 64
)


def root(**stated: object) -> Spec:
    return Spec(command="./train", then=[EXPORT, EVAL, NOTIFY], **stated)  # type: ignore[arg-type]


def test_steps_follow_one_another() -> None:
    record = queued(spec=root())
    for number, step in enumerate((EXPORT, EVAL, NOTIFY), 1):
        (launch,) = pipelines.launches(record)
        assert (launch.number, launch.step) == (number, step)
        spec = pipelines.step_spec(record, launch, left=None, start_from=None)
        record = queued(id=f"{'b' * 15}{'xyz'[number - 1]}", spec=spec)
        assert pipelines.root_of(record) == "abcdefghijklmnop"
    assert pipelines.launches(record) == []


def test_parallel_steps_all_follow_the_root() -> None:
    """Decision 2"""
    launches = pipelines.launches(queued(spec=root(then_parallel=True)))
    assert [(one.number, one.step, one.then) for one in launches] == [
        (1, EXPORT, []),
        (2, EVAL, []),
        (3, NOTIFY, []),
    ]


def test_a_step_has_its_own_size_and_what_the_job_before_it_shared() -> None:
    """Code, variables, secrets, priority and deadline are inherited; what the root stated for
    itself (its size, its checks, its tries) is its own."""
    record = queued(
        priority=7,
        spec=root(
            cpu=8,
            memory_gb=64,
            then_cpu=2,
            verify="./check",
            retries=3,
            body_retries=2,
            timeout_seconds=60,
            idle_timeout_seconds=60,
            expected_outputs=["model"],
            environment={"A": "1"},
            secrets={"TOKEN": "team#token"},
            repo=GitRepo(url="https://host/lab.git", commit="a" * 40),
            image="lab/train:1",
            tags=["nightly"],
            deadline_at=NOW + timedelta(days=1),
            max_lease_losses=9,
        ),
    )
    (launch,) = pipelines.launches(record)
    spec = pipelines.step_spec(record, launch, left=LEFT, start_from=SAVE)
    before = record.spec
    kept = ("environment", "secrets", "repo", "image", "tags", "deadline_at", "max_lease_losses")
    for name in kept:
        assert getattr(spec, name) == getattr(before, name)
    assert (spec.command, spec.cpu, spec.memory_gb, spec.priority) == ("./export", 2, None, 7)
    own = (spec.verify, spec.retries, spec.body_retries)
    assert own == (None, None, 0)
    assert (spec.timeout_seconds, spec.idle_timeout_seconds) == (None, None)
    assert spec.expected_outputs == []
    assert (spec.inputs, spec.start_from) == ([LEFT], SAVE)
    make_request([spec.command], spec, batch=False)


def test_a_step_finds_what_all_before_it_left_and_starts_from_the_root() -> None:
    """Inputs of the root are its own."""
    record = queued(spec=root(inputs=[LEFT.evolve(name="data")]))
    (launch,) = pipelines.launches(record)
    export = queued(
        id="bcdefghijklmnopq",
        spec=pipelines.step_spec(record, launch, left=LEFT, start_from=SAVE),
    )
    (launch,) = pipelines.launches(export)
    left = LEFT.evolve(name=pipelines.name_left_by(export))
    spec = pipelines.step_spec(export, launch, left=left, start_from=None)
    assert [one.name for one in spec.inputs] == ["export", "root"]
    assert spec.start_from == SAVE
    assert spec.step_of is not None
    assert (spec.step_of.root, spec.step_of.number, spec.step_of.name) == (record.id, 2, "eval")


@pytest.mark.parametrize(
    ("before", "steps", "word"),
    [
        (WAITS, (None, None), "queued"),
        (RUNS, (None, None), "running"),
        (State.PAUSED, (None, None), "paused"),
        (FAILED, (None, None), "failed"),
        (State.TIMED_OUT, (None, None), "failed"),
        (State.CANCELLED, (None, None), "stopped"),
        (DONE, (None, None), "queued"),
        (DONE, (WAITS, None), "queued"),
        (DONE, (State.PAUSED, None), "queued"),
        (DONE, (RUNS, None), "running"),
        (DONE, (RUNS, WAITS), "running"),
        (DONE, (DONE, None), "queued"),
        (DONE, (DONE, DONE), "succeeded"),
        (DONE, (FAILED, None), "partial"),
        (DONE, (State.CANCELLED, None), "partial"),
        (DONE, (DONE, FAILED), "partial"),
        (DONE, (FAILED, RUNS), "running"),
    ],
)
def test_a_pipeline_has_one_word(before: State, steps: tuple[State | None, ...], word: str) -> None:
    """R59, R60, R61, R62: the root's own outcome beats its steps."""
    assert roll_up(before, steps, parallel=False) is PipelineState(word)


@pytest.mark.parametrize(
    ("steps", "word"),
    [
        ((FAILED, None), "queued"),
        ((None, DONE), "queued"),
        ((RUNS, None), "running"),
        ((FAILED, DONE), "partial"),
        ((DONE, DONE), "succeeded"),
    ],
)
def test_a_parallel_step_that_was_not_seen_is_to_come(
    steps: tuple[State | None, ...], word: str
) -> None:
    """Whatever became of the others: whoever settles the root launches them one after another."""
    assert roll_up(DONE, steps, parallel=True) is PipelineState(word)


@pytest.mark.parametrize(
    ("parallel", "steps", "held", "word"),
    [
        (False, (None, None), [1], "partial"),
        (False, (DONE, None), [2], "partial"),
        (False, (None, None), [2], "queued"),
        (True, (DONE, None), [2], "partial"),
        (True, (None, None), [2], "queued"),
        (True, (None, None), [1, 2], "partial"),
    ],
)
def test_a_step_that_is_held_is_not_to_come(
    parallel: bool, steps: tuple[State | None, ...], held: list[int], word: str
) -> None:
    assert roll_up(DONE, steps, parallel=parallel, held=held) is PipelineState(word)


@pytest.mark.parametrize(
    ("before", "steps", "expected"),
    [
        (FAILED, (None, None), [1, 2]),
        (DONE, (FAILED, None), [2]),
        (DONE, (RUNS, None), []),
        (DONE, (DONE, None), []),
        (RUNS, (None, None), []),
    ],
)
def test_what_will_not_be_started_is_skipped(
    before: State, steps: tuple[State | None, ...], expected: list[int]
) -> None:
    """R61"""
    assert list(skipped(steps, roll_up(before, steps, parallel=False))) == expected


def test_a_step_is_named_and_its_name_may_be_its_type() -> None:
    assert parse_step("eval=python eval.py --a=b") == Step(
        name="eval", command="python eval.py --a=b", type=JobType.EVAL
    )
    assert parse_step("tell=x").type is JobType.JOB


@pytest.mark.parametrize("text", ["eval", "=x", "a b=x", ""])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="must be NAME=COMMAND"):
        parse_step(text)


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"then": [EXPORT, EXPORT]}, "would be named export"),
        ({"then": [EXPORT.evolve(name="root")]}, "would be named root"),
        ({"then": [EXPORT.evolve(command=" ")]}, "step export is empty"),
        ({"then": [EXPORT], "then_cpu": 0}, "then-cpu 0 must be a positive number"),
        ({"then_parallel": True}, "nothing is to follow"),
        ({"then": [EXPORT.evolve(name=f"s{n}") for n in range(21)]}, "21 steps are to follow"),
    ],
)
def test_what_cannot_follow_is_refused_at_the_submit(stated: dict[str, object], text: str) -> None:
    """R57: at once, and not hours later."""
    with pytest.raises(Refused, match=text):
        make_request(["./train"], Spec(command="", **stated), batch=False)  # type: ignore[arg-type]
