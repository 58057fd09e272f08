"""`stado cancel`, also called `stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.cli.stopping import Manner, Wish
    from stado.jobs.repository import Repository

PIPELINE_PREFIX = "pipeline_"
"""As in `stado.core.pipelines`, which need not be loaded to see it."""


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@options.reason_option
@click.option("--no-wait", is_flag=True, help="Do not wait for a running job to have stopped.")
@click.option(
    "--terminate",
    is_flag=True,
    help="Ask for the machine of a running job to be given back, too. It is kept with the request; "
    "nobody heeds it yet, for stado rents no machines.",
)
@click.option("--yes", is_flag=True, help="Ask nothing.")
@json_option
@target_options
def cancel(
    *,
    job: str | None,
    note: str | None,
    no_wait: bool,
    terminate: bool,
    yes: bool,
    as_json: bool,
    target: Target,
) -> int:
    """Cancel a job, or every job of a batch: a queued or a paused one at once, a running one at its
    worker's next check-in. `stado stop` is the same.

    ID is a job or batch id, a part of one, a run id, `last`, `pipeline_…` (what of it has not
    ended), or `all`: every job of yours that is queued, runs or is paused. Without ID it is your
    newest submission. It is asked first in these two cases.

    The request is durable as soon as it is made: Ctrl-C stops the waiting, not the cancel. A
    worker that is silent for a whole lease is not waited for any longer.
    """
    from stado.cli import exits
    from stado.cli.stopping import Wish, stop_jobs

    wish = Wish(by=user_name(), note=note, wait=not no_wait, as_json=as_json)
    with opened_repository(target) as repo:
        if job is not None and job.strip().startswith(PIPELINE_PREFIX):
            return _cancel_pipeline(repo, job, wish, cancelling(terminate=terminate))
        selection = _selection(repo, job, wish.by)
        if _nothing_to_do(repo, selection, asks=job is None, as_json=as_json):
            return exits.FAILED if selection.job_ids else exits.OK
        if not (yes or _may_go_on(repo, selection, unnamed=job is None)):
            return exits.FAILED
        return stop_jobs(repo, selection, cancelling(terminate=terminate), wish)


def _cancel_pipeline(repo: Repository, text: str, wish: Wish, manner: Manner) -> int:
    """Also the step that is launched meanwhile, where a job had completed before it was asked."""
    from stado.cli import render
    from stado.cli.pipeline import root_named, summary
    from stado.cli.selectors import Selection
    from stado.cli.stopping import Stopped, stop, tell_stopped
    from stado.jobs.pipeline_sight import stop_pipeline

    stopped = Stopped([], {}, 0.0)

    def stop_some(job_ids: list[str]) -> None:
        nonlocal stopped
        selection = Selection(text, job_ids, batch=len(job_ids) > 1)
        stopped += stop(repo, selection, manner, wish)

    seen = stop_pipeline(repo, root_named(repo, text), stop_some)
    if not stopped.answers:
        render.tell(f"stado: nothing of {text.strip()} is queued, runs or is paused")
    code = tell_stopped(stopped, manner, wish)
    render.tell(summary(seen))
    return code


def cancelling(*, terminate: bool) -> Manner:
    """What `stado cancel` does to jobs."""
    from functools import partial

    from stado.cli import render
    from stado.cli.stopping import Manner
    from stado.core.states import State
    from stado.jobs import changes

    if terminate:
        render.tell(
            "--terminate is kept with the request; no machine is given back: none is rented"
        )
    stop = partial(changes.cancel, terminate=terminate)
    return Manner(verb="cancel", state=State.CANCELLED, command="stado cancel", stop=stop)


def _selection(repo: Repository, text: str | None, user: str) -> Selection:
    from stado.cli.selectors import LAST, means_all, select, select_live

    if text is not None and means_all(text):
        return select_live(repo, user=user)
    return select(repo, text if text is not None else LAST, user=user)


def _nothing_to_do(repo: Repository, selection: Selection, *, asks: bool, as_json: bool) -> bool:
    """Whether what was not named by its id has ended already: then there is nothing to ask."""
    from stado.cli import render
    from stado.cli.selectors import ALL
    from stado.cli.stopping import described, states_in
    from stado.jobs.sight import present_record

    if selection.text == ALL and not selection.job_ids:
        if as_json:
            render.print_json({"jobs": []})
        render.tell(
            f"no job of {user_name()} is queued, runs or is paused: there is nothing to cancel"
        )
        return True
    if not asks or selection.unfinished is not None:
        return False
    if any(not state.terminal for state in states_in(repo, selection).values()):
        return False
    render.tell(f"stado: your newest, {described(repo, selection)}, has ended: not cancelled")
    if present_record(repo, selection.job_ids[0]).spec.then:
        pipeline = f"{PIPELINE_PREFIX}{selection.job_ids[0]}"
        render.tell(f"`stado cancel {pipeline}` cancels those of its steps that have not ended")
    return True


def _may_go_on(repo: Repository, selection: Selection, *, unnamed: bool) -> bool:
    """What was named by its id is never asked about. Raises `Refused` where nobody can answer."""
    from stado.cli import render
    from stado.cli.selectors import ALL, listed
    from stado.cli.stopping import NAMED_MAX, confirmed, described

    if selection.text == ALL:
        count = len(selection.job_ids)
        what = f"{'all ' if count > 1 else ''}{render.plural(count, 'job')} of yours"
        what += f" ({listed(selection.job_ids, count=NAMED_MAX)})"
    elif unnamed:
        what = f"your newest, {described(repo, selection)}"
    else:
        return True
    return confirmed("cancel", what, done="cancelled")
