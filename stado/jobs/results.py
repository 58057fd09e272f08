"""The result of a job: the JSON that it left as `result.json` at the top of its output folder."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from stado.core.output_paths import RESULT_NAME
from stado.core.records import Manifest, OutputFile, Record
from stado.core.states import Leftover, State, WarningCode
from stado.errors import Conflict, NotFound, Refused
from stado.jobs.expired import check_there, told_missing
from stado.jobs.outputs import find_present_manifest
from stado.jobs.repository import Repository

RESULT_BYTES_MAX = 1024 * 1024

_FOLDER_UNREADABLE = ".: it cannot be read"
"""How a manifest begins to tell that the whole output folder could not be listed."""

RESULT_MISSING = "result_missing"
"""The code of who asks for the result of a job that left none."""

RESULT_LEFT_OUT = "result_left_out"
RESULT_UNDELIVERED = "result_undelivered"
"""The codes where it left one, or may have, that did not come to the store."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """`text` is the JSON as the job wrote it, `value` what it says."""

    text: str
    value: Any


def read_result(repo: Repository, record: Record) -> JobResult:
    """Raises `Refused` when the job has not completed, left no result, one that is none (too
    large, not JSON), or one that did not come, and `Conflict` when the stored one is gone or not
    what the job left. Two reads; where one finds nothing a listing besides, which tells whether
    its output has gone for its age (`outputs_expired`)."""
    _check_completed(record)
    with told_missing(repo, record):
        manifest = find_present_manifest(repo, record.id, record.epoch, record.state)
        if manifest is None:
            check_there(repo, record, Leftover.OUTPUTS)
        files = manifest.files if manifest is not None else []
        file = next((file for file in files if file.path == RESULT_NAME), None)
        if file is None:
            raise _lacking(record, manifest)
        if file.size > RESULT_BYTES_MAX:
            said = f"has {file.size:,} bytes and at most {RESULT_BYTES_MAX:,} count"
            raise _no_result(record, said)
        return _parsed(record, _read(repo, record, file))


def _read(repo: Repository, record: Record, file: OutputFile) -> bytes:
    named = f"{file.path} of job {record.id}"
    try:
        data = repo.store.get(file.key).data
    except NotFound:
        raise Conflict(file.key, f"{named} is missing, though its manifest names it") from None
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise Conflict(file.key, f"{named} is not what its manifest says")
    return data


def _lacking(record: Record, manifest: Manifest | None) -> Refused:
    """A result that did not come is not one that there never was."""
    warnings = record.ending.warnings if record.ending is not None else []
    for warning in warnings:
        if warning.code is WarningCode.OUTPUT_UNDELIVERED:
            return _lost(record, RESULT_UNDELIVERED, warning.detail)
    for line in manifest.skipped if manifest is not None else []:
        if line.startswith((f"{RESULT_NAME}: ", _FOLDER_UNREADABLE)):
            return _lost(record, RESULT_LEFT_OUT, line)
    return Refused(
        RESULT_MISSING,
        f"job {record.id} left no {RESULT_NAME} at the top of its output folder: it has no "
        f"result; `stado outputs {record.id}` lists what it left",
    )


def _lost(record: Record, code: str, why: str) -> Refused:
    return Refused(code, f"job {record.id} completed, and its result did not come: {why}")


def _check_completed(record: Record) -> None:
    if not record.state.terminal:
        raise Refused(
            "result_not_yet",
            f"job {record.id} is {record.state.value}: it has no result yet; "
            f"`stado job watch {record.id} --follow` waits for its end",
        )
    if record.state is not State.COMPLETED:
        reason = record.ending.reason if record.ending is not None else None
        why = f" ({reason.value})" if reason is not None else ""
        raise Refused(
            "result_of_no_success",
            f"job {record.id} is {record.state.value}{why}: only a completed job has a result; "
            f"`stado results {record.id} DIR` fetches what it left",
        )


def _parsed(record: Record, data: bytes) -> JobResult:
    try:
        text = data.decode()
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise _no_result(record, "is no JSON: too many brackets within each other") from None
    except ValueError as error:
        raise _no_result(record, f"is no JSON: {error}") from None
    return JobResult(text, value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it says {name}")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"no number is as large as {text[:40]}")
    return number


def _no_result(record: Record, why: str) -> Refused:
    return Refused(
        "result_invalid",
        f"{RESULT_NAME} of job {record.id} {why}; `stado results {record.id} DIR` fetches it",
    )
