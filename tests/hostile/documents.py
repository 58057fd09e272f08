"""Valid documents of every kind, made from the types of their fields."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from datetime import UTC
from enum import StrEnum
from inspect import getmembers, isclass
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec.structs import fields

from stado.core import budgets, hints, keys, records, settings
from stado.core.documents import Document, Instant, Part
from stado.core.hints import Estimates
from stado.core.ids import BASE_PATTERN, JOB_PATTERN
from stado.core.records import (
    Artifact,
    Checkpoint,
    ClaimCell,
    EndCell,
    Ending,
    Heartbeat,
    Holder,
    LateResult,
    LogIndex,
    LogRange,
    Manifest,
    OpenCell,
    OutputCopy,
    PolicySeal,
    Record,
    RunRecord,
    SaveRef,
    leads_on,
)
from stado.core.spec import Request, Spec
from stado.core.states import State, Verdict

KINDS: list[type[Document]] = [
    kind
    for module in (budgets, hints, records, settings)
    for _, kind in getmembers(module, isclass)
    if kind.__module__ == module.__name__ and issubclass(kind, Document) and kind is not Document
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
job_ids = st.from_regex(JOB_PATTERN, fullmatch=True)
base_ids = st.from_regex(BASE_PATTERN, fullmatch=True)
instants = st.datetimes(timezones=st.just(UTC))

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | texts | st.just("unknown_fields"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.just("unknown_fields"), inner, max_size=3)
    ),
    max_leaves=8,
)
"""What a newer program may have written, and what nonsense looks like."""


@functools.cache
def documents(kind: type[Document]) -> st.SearchStrategy[Document]:
    """Valid ones, with fields that nobody knows."""
    made = _MADE.get(kind)
    return parts(kind) if made is None else made()


@functools.cache
def parts(kind: type[Part]) -> st.SearchStrategy[Any]:
    own = {
        field.name: _of_type(field.type)
        for field in fields(kind)
        if field.name not in ("unknown_fields", "schema_number")
    }
    known = {field.encode_name for field in fields(kind)}
    unknown = st.dictionaries(texts.filter(lambda name: name not in known), anything, max_size=2)
    return st.builds(kind, unknown_fields=unknown, **own)


def _of_type(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation == Instant:
        return instants
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _within(*arguments)
    if origin in (types.UnionType, Union):
        return st.one_of(*map(_of_type, arguments))
    if origin is list:
        return st.lists(_of_type(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(_of_type(arguments[0]), _of_type(arguments[1]), max_size=2)
    return _of_plain_type(annotation)


def _of_plain_type(kind: type) -> st.SearchStrategy[Any]:
    if issubclass(kind, Part):
        return parts(kind)
    if issubclass(kind, StrEnum):
        return st.sampled_from(list(kind))
    plain = {
        str: texts,
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**63),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }
    return plain[kind]


def _within(kind: Any, limits: msgspec.Meta) -> st.SearchStrategy[Any]:
    if limits.max_length is not None:  # far above what is drawn
        return _of_type(kind)
    if limits.pattern is not None and "^\\0" not in limits.pattern:
        return st.from_regex(limits.pattern, fullmatch=True)
    if limits.pattern is not None:  # a folder, or any text
        begin = "/" if limits.pattern.startswith(r"\A/") else ""
        return texts.map(lambda text: begin + text.replace("\0", ""))
    lowest = limits.ge if limits.ge is not None else limits.gt
    highest = limits.le if limits.le is not None else limits.lt
    if kind is int:
        return st.integers(int(lowest or 0), int(highest or 0))
    return st.floats(lowest, highest, exclude_min=limits.ge is None, exclude_max=limits.le is None)


# Documents whose fields depend on each other


def specs() -> st.SearchStrategy[Spec]:
    return parts(Spec)


@st.composite
def job_records(draw: st.DrawFn, state: State | None = None) -> Record:
    record: Record = draw(parts(Record))
    state = draw(st.sampled_from(list(State))) if state is None else state
    holder = draw(parts(Holder)) if state is State.RUNNING else record.holder
    ending = draw(parts(Ending)) if state.at_rest else record.ending
    retries = draw(st.integers(0, record.epoch - 1))
    return record.evolve(
        id=draw(job_ids),
        state=state,
        holder=holder,
        ending=ending,
        manual_retries=retries,
        due_ms=record.due_ms if state is State.QUEUED else None,
    )


@st.composite
def claim_cells(draw: st.DrawFn) -> ClaimCell:
    cell: ClaimCell = draw(parts(ClaimCell))
    state = State.RUNNING if cell.intent is None else State.QUEUED
    return cell.evolve(record=draw(job_records(state)))


@st.composite
def end_cells(draw: st.DrawFn) -> EndCell:
    cell: EndCell = draw(parts(EndCell))
    ending = cell.ending
    retry_at = draw(instants) if ending.verdict is Verdict.RETRYING else None
    ending = ending.evolve(retry_at=retry_at)
    record = draw(job_records(ending.verdict.state or State.RUNNING))
    return cell.evolve(record=record.evolve(ending=ending), ending=ending)


@st.composite
def heartbeats(draw: st.DrawFn) -> Heartbeat:
    beat: Heartbeat = draw(parts(Heartbeat))
    return beat.evolve(live=draw(st.none() | st.just("http://10.0.0.7:6006/")))


@st.composite
def open_cells(draw: st.DrawFn) -> OpenCell:
    cell: OpenCell = draw(parts(OpenCell))
    record = draw(job_records(State.QUEUED))
    states = [state for state in State if leads_on(state, cell.kind)]
    return cell.evolve(record=record.evolve(opened_from=draw(st.sampled_from(states))))


@st.composite
def run_records(draw: st.DrawFn) -> RunRecord:
    run: RunRecord = draw(parts(RunRecord))
    commands = draw(st.lists(texts.map(lambda text: f"x{text}".replace("\0", "")), min_size=1))
    batch = len(commands) > 1 or run.request.batch
    indices = draw(st.just([]) | st.just(list(range(len(commands)))))
    request: Request = run.request.evolve(commands=commands, batch=batch, indices=indices)
    return run.evolve(request=request, count=len(commands), base_id=draw(base_ids))


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    manifest: Manifest = draw(parts(Manifest)).evolve(job_id=draw(job_ids))
    files = [
        file.evolve(key=keys.output_file(manifest.job_id, manifest.epoch, file.path))
        for file in manifest.files
    ]
    return manifest.evolve(files=files)


@st.composite
def estimates(draw: st.DrawFn) -> Estimates:
    """Each run has its end."""
    told: Estimates = draw(parts(Estimates))
    measured = [
        one.evolve(seconds=[seconds], ended_ms=[1000 * seconds])
        for one, seconds in zip(told.measured, (1, 60), strict=False)
    ]
    return told.evolve(measured=measured)


@st.composite
def output_copies(draw: st.DrawFn) -> OutputCopy:
    copy: OutputCopy = draw(parts(OutputCopy)).evolve(job_id=draw(job_ids))
    files = [file.evolve(key=keys.copied_file(copy.job_id, file.path)) for file in copy.files]
    return copy.evolve(files=files)


@st.composite
def artifacts(draw: st.DrawFn) -> Artifact:
    artifact: Artifact = draw(parts(Artifact)).evolve(job_id=draw(job_ids))
    files = [
        file.evolve(key=keys.output_file(artifact.job_id, artifact.epoch, file.path))
        for file in artifact.files
    ]
    return artifact.evolve(files=files)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    found: Checkpoint = draw(parts(Checkpoint)).evolve(job_id=draw(job_ids))
    files = [
        file.evolve(
            parts=[
                keys.checkpoint_part(found.job_id, found.epoch, found.sequence, number)
                for number, _ in enumerate(file.parts)
            ],
            digests=["" for _ in file.parts],
        )
        for file in found.files
    ]
    return found.evolve(files=files, best=_own_save(found.job_id, found.best))


def _own_save(job_id: str, save: SaveRef | None) -> SaveRef | None:
    return save and save.evolve(manifest=keys.checkpoint_manifest(job_id, 1, 1))


@st.composite
def policy_seals(draw: st.DrawFn) -> PolicySeal:
    seal: PolicySeal = draw(parts(PolicySeal)).evolve(job_id=draw(job_ids))
    job_id = seal.job_id
    return seal.evolve(latest=_own_save(job_id, seal.latest), best=_own_save(job_id, seal.best))


@st.composite
def late_results(draw: st.DrawFn) -> LateResult:
    late: LateResult = draw(parts(LateResult))
    return late.evolve(job_id=draw(job_ids))


@st.composite
def log_indexes(draw: st.DrawFn) -> LogIndex:
    """Of bytes with gaps between them, with a digest for each piece, or none."""
    index: LogIndex = draw(parts(LogIndex))
    ranges, end = [], 0
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99)), max_size=3)):
        ranges.append(LogRange(offset=end + gap, size=size))
        end += gap + size
    pieces = -(-sum(one.size for one in ranges) // 10)
    digested = draw(st.booleans())
    return index.evolve(
        job_id=draw(job_ids),
        block_bytes=100,
        digest_bytes=10 if digested else 0,
        digests=["ab" * 32] * pieces if digested else [],
        ranges=ranges,
        times=sorted(index.times, key=lambda time: time.offset),
    )


_MADE: dict[type[Document], Callable[[], st.SearchStrategy[Any]]] = {
    Record: job_records,
    ClaimCell: claim_cells,
    EndCell: end_cells,
    Heartbeat: heartbeats,
    Estimates: estimates,
    OpenCell: open_cells,
    RunRecord: run_records,
    Manifest: manifests,
    OutputCopy: output_copies,
    Artifact: artifacts,
    Checkpoint: checkpoints,
    PolicySeal: policy_seals,
    LateResult: late_results,
    LogIndex: log_indexes,
}
