"""`stado init`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from stado.cli.context import (
    json_option,
    live_machine,
    opened_store,
    read_settings,
    user_name,
)
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.composition import Machine
    from stado.core.records import Deployment
    from stado.settings import Settings
    from stado.storage.port import Store


@click.command()
@click.argument("address", metavar="[STORE]", required=False)
@click.option(
    "--lease-seconds",
    type=float,
    help="How long a worker may be silent before its jobs are queued again.  [default: 120]",
)
@json_option
@target_options
def init(
    *, address: str | None, lease_seconds: float | None, as_json: bool, target: Target
) -> None:
    """Make STORE a stado store: a directory (made if need be), s3://bucket/prefix or
    gs://bucket/prefix.

    Proves first that the store honours the conditions of writes that the queue rests on. A store
    that is one already stays as it is. Prints the line for your shell that names it:
    `eval "$(stado init ./queue)"`.
    """
    from stado.jobs.deployments import check_lease

    if lease_seconds is not None:
        check_lease(lease_seconds)
    settings = read_settings(target._replace(store=address or target.store))
    user = user_name()
    machine = live_machine()
    with opened_store(settings, machine, create=True) as store:
        deployment, created = _make(store, machine, lease_seconds=lease_seconds, user=user)
        _answer(settings, store.address, deployment, created=created, as_json=as_json)


def _make(
    store: Store, machine: Machine, *, lease_seconds: float | None, user: str
) -> tuple[Deployment, bool]:
    from stado.cli.proving import proved
    from stado.core.records import LEASE_SECONDS_DEFAULT
    from stado.jobs.deployments import make_deployment

    standing = _find_deployment(store)
    if standing is None:
        if lease_seconds is None:
            lease_seconds = LEASE_SECONDS_DEFAULT
        deployment, created = make_deployment(
            store,
            entropy=machine.entropy,
            proof=proved(store, machine),
            lease_seconds=lease_seconds,
            by=user,
        )
    else:
        deployment, created = standing, False
    if not created and lease_seconds not in (None, deployment.lease_seconds):
        _refuse_lease(store, deployment, lease_seconds)
    return deployment, created


def _refuse_lease(store: Store, deployment: Deployment, lease_seconds: float | None) -> None:
    from stado.errors import Refused

    raise Refused(
        "lease_differs",
        f"{store.address} is a stado store already, with a lease of "
        f"{deployment.lease_seconds:g} s, and stays so: leave out --lease-seconds "
        f"{lease_seconds:g}, or name another store",
    )


def _find_deployment(store: Store) -> Deployment | None:
    from stado.core import keys
    from stado.errors import NotFound
    from stado.jobs.deployments import read_deployment

    try:
        store.head(keys.DEPLOYMENT)
    except NotFound:
        return None
    return read_deployment(store)


def _answer(
    settings: Settings, address: str, deployment: Deployment, *, created: bool, as_json: bool
) -> None:
    from dataclasses import replace

    from stado.cli import render

    if as_json:
        render.print_json(
            {
                "store": address,
                "created": created,
                "deployment_id": deployment.deployment_id,
                "lease_seconds": deployment.lease_seconds,
                "proof": deployment.proof.plain(),
            }
        )
        return
    kind = "a new stado store" if created else "a stado store already"
    render.tell(f"{address} is {kind} (lease {deployment.lease_seconds:g} s)")
    if not deployment.proof.conditional_delete:
        render.tell("it does not honour delete by version: jobs are safe, tidying may be late")
    render.tell("next: name it to your shell, start a worker, submit")
    for name, value in replace(settings, store=address).environment().items():
        render.print_line(f"export {name}={shlex.quote(value)}")
    render.tell("stado up                                       # on the machine that shall work")
    render.tell("stado submit --run-id first 'echo hello'")
