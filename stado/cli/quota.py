"""`stado quota`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.settings import DeploymentSettings
    from stado.jobs.limit_sight import Limit


@click.command()
@json_option
@target_options
def quota(*, as_json: bool, target: Target) -> None:
    """Show how many jobs may run under each limit of the deployment, and which ones do. Of limits
    whose names begin with gpus it is cards that are counted.

    `stado settings set` changes limits: quotas.running_jobs, quotas.running_jobs_per_user,
    groups.limits; of cards quotas.running_gpus, quotas.running_gpus_per_user, groups.gpus.
    """
    from stado.cli import render
    from stado.cli.tables import Column
    from stado.jobs.limit_sight import look_at_limits
    from stado.jobs.settings import read_settings

    with opened_repository(target) as repo:
        settings, limits = read_settings(repo), look_at_limits(repo)
    if as_json:
        render.print_json({"limits": [_fields(one) for one in limits]})
    elif not limits:
        render.tell(_nothing(settings))
    else:
        columns = [Column("LIMIT"), Column("RUN", right=True), Column("MAY", right=True)]
        render.print_table([*columns, Column("JOBS")], [_cells(one) for one in limits])


def _nothing(settings: DeploymentSettings) -> str:
    """Whose limits there are is known of users only once they have places."""
    quotas = settings.quotas
    if quotas.running_jobs_per_user is None and quotas.running_gpus_per_user is None:
        return "no limit is set, and no place is taken"
    return "no place is taken under the limits of each user, and no other limit is set"


def _cells(limit: Limit) -> list[str]:
    may = "-" if limit.limit is None else f"{limit.limit:,}"
    places = Counter(token.job_id for token in limit.held)
    jobs = [_job(job_id, count, limit) for job_id, count in places.items()]
    jobs += [f"and {limit.more:,} more"] * bool(limit.more)
    return [limit.name, f"{limit.taken:,}", may, ", ".join(jobs)]


def _job(job_id: str, count: int, limit: Limit) -> str:
    return f"{job_id} ({count})" if limit.of_cards else job_id


def _fields(limit: Limit) -> dict[str, Any]:
    from stado.cli.render import instant_text

    return {
        "name": limit.name,
        "of": "cards" if limit.of_cards else "jobs",
        "limit": limit.limit,
        "taken": limit.taken,
        "held": [
            {
                "job_id": token.job_id,
                "epoch": token.epoch,
                "consumer": token.by,
                "since": instant_text(token.at),
                "confirmed": token.confirmed,
            }
            for token in limit.held
        ],
    }
