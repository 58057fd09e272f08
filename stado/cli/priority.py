"""`stado job set-priority`: another place in the queue for a job that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.jobs.priority import NotQueued, Receipt


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is a number, and refused
@click.argument("job", metavar="ID")
@click.argument("priority", type=int, metavar="PRIORITY")
@json_option
@target_options
def set_priority(*, job: str, priority: int, as_json: bool, target: Target) -> int:
    """Give a queued job another priority, without submitting it anew: higher starts first, then
    older.

    ID is a job id, a part of one, a run id, or `last`. A job that is not queued any more is refused
    with its state, and stays as it is.
    """
    from stado.cli import exits, render
    from stado.cli.selectors import select_job
    from stado.jobs import priority as moving

    user = user_name()
    with opened_repository(target) as repo:
        job_id = select_job(repo, job, user=user, command="stado job set-priority")
        try:
            receipt = moving.set_priority(repo, job_id, priority, by=user)
        except moving.NotQueued as refusal:
            if as_json:
                render.print_json(_refusal_fields(refusal))
            raise
    if as_json:
        render.print_json(_receipt_fields(receipt))
        return exits.OK
    render.print_line(f"{job_id}  {receipt.record.priority}")
    render.tell(_sentence(receipt))
    render.tell(f"next: stado job why {job_id}")
    return exits.OK


def _sentence(receipt: Receipt) -> str:
    """`the job starts sooner: its priority was 0`."""
    change = receipt.change
    if not receipt.changed_now or change is None:
        return "the priority of the job is that already"
    way = "sooner" if change.after > change.before else "later"
    return f"the job starts {way}: its priority was {change.before}"


def _receipt_fields(receipt: Receipt) -> dict[str, Any]:
    from stado.cli.render import instant_text

    record, change = receipt.record, receipt.change
    return {
        "job_id": record.id,
        "status": record.state.value,
        "epoch": record.epoch,
        "changed_now": receipt.changed_now,
        "from": change.before if change and receipt.changed_now else record.priority,
        "to": record.priority,
        "by": None if change is None else change.by,
        "at": None if change is None else instant_text(change.at),
        "refused": None,
    }


def _refusal_fields(refusal: NotQueued) -> dict[str, Any]:
    record = refusal.record
    return {
        "job_id": record.id,
        "status": record.state.value,
        "epoch": record.epoch,
        "changed_now": False,
        "from": record.priority,
        "to": record.priority,
        "by": None,
        "at": None,
        "refused": {"code": refusal.code, "text": refusal.text},
    }
