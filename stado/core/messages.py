"""What a notice says once it is sent: one small JSON document. Pure.

The same from every coordinator, and each time: a receiver that has seen its `id` can drop it.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from stado.core.pipelines import PipelineState, pipeline_id
from stado.core.records import Record
from stado.core.states import NotifyOn

SCHEMA = 1


def message_id(job_id: str, epoch: int, word: NotifyOn) -> str:
    return f"{job_id}.{epoch}.{word}"


def job_message(record: Record, word: NotifyOn, at: datetime) -> bytes:
    """`record`: as the cell has it that says so. No command, variable or output of it is told."""
    ending = record.ending if word is not NotifyOn.RUNNING else None
    what = ending.told if ending is not None else word.value
    return _encoded(
        message_id(record.id, record.epoch, word),
        record,
        status=word.value,
        status_reason=ending.reason.value if ending and ending.reason else None,
        exit_code=ending.exit_code if ending else None,
        host=record.holder.host if record.holder is not None else None,
        at=at,
        text=f"job {record.id} of run {record.run_id} is {what}"
        if ending is None
        else f"job {record.id} of run {record.run_id}: {what}",
    )


def pipeline_message(root: Record, state: PipelineState, number: int) -> bytes:
    ending = root.ending
    assert ending is not None  # its root has ended
    return _encoded(
        message_id(root.id, number, NotifyOn.PIPELINE),
        root,
        status=state.value,
        at=ending.ended_at,
        text=f"{pipeline_id(root)} of run {root.run_id} {_PIPELINE_TOLD[state]}",
    )


_PIPELINE_TOLD = {
    PipelineState.SUCCEEDED: "has succeeded",
    PipelineState.PARTIAL: "is partial: its root has completed, and a step has not",
    PipelineState.FAILED: "has failed",
    PipelineState.STOPPED: "was stopped",
}


def _encoded(id_: str, record: Record, *, at: datetime, text: str, **fields: Any) -> bytes:
    message = {
        "schema": SCHEMA,
        "id": id_,
        "job_id": record.id,
        "epoch": record.epoch,
        "run_id": record.run_id,
        "batch_id": record.batch_id,
        "pipeline_id": pipeline_id(record),
        "type": record.spec.type.value,
        "submitter": record.submitter,
        "at": at.isoformat(timespec="milliseconds"),
        "text": text,
        **fields,
    }
    return f"{json.dumps(message)}\n".encode()
