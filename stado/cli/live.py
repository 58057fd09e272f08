"""`stado view`: where a job that runs can be watched, as it says itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.records import Record
    from stado.jobs.repository import Repository


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@json_option
@target_options
def view(*, job: str | None, as_json: bool, target: Target) -> None:
    """Print the URL at which a running job can be watched, such as its TensorBoard, as the job
    states it: with `stado.live(URL)`, or in the file `live` of STADO_REPORT_DIR.

    ID is a job id, a part of one, a run id, or `last`; without one it is your newest job. Nothing
    is opened and nothing forwarded: the URL has to be one that you can reach.
    """
    from stado.cli import render
    from stado.cli.selectors import named_or_newest
    from stado.jobs.sight import present_record

    with opened_repository(target) as repo:
        job_id = named_or_newest(repo, job, user=user_name(), command="stado view")
        record = present_record(repo, job_id)
        url = _live_url(repo, record)
    if as_json:
        render.print_json({"job_id": record.id, "run_id": record.run_id, "live": url})
        return
    render.print_line(url)


def _live_url(repo: Repository, record: Record) -> str:
    """Raises `Refused` when the job does not run, or states none."""
    from stado.core.states import State
    from stado.errors import Refused
    from stado.jobs.status import life_of

    if record.state is not State.RUNNING:
        waits = record.state is State.QUEUED
        then = (
            f"`stado job why {record.id}` says why it waits"
            if waits
            else "a live view lasts as long as it does"
        )
        raise Refused(
            "live_not_running", f"job {record.id} is {record.state.value}, it does not run: {then}"
        )
    heartbeat = life_of(repo, record).heartbeat
    if heartbeat is None or heartbeat.live is None:
        lease_seconds = record.holder.lease_seconds if record.holder is not None else 0.0
        raise Refused(
            "live_missing",
            f"job {record.id} runs and states no live view: it would with `stado.live(URL)`, or a "
            f"file `live` in STADO_REPORT_DIR, and {lease_seconds / 4:g} s later at the most it is "
            "known here",
        )
    return heartbeat.live
